//! Writing to the API server.
//!
//! Every write of a reconcile goes through here: it is remembered, so that the next reconcile waits until the
//! cache has seen it and so that `/debug/reconciles` can show it; and in a dry run it is remembered only.

use crate::cache::Revision;
use crate::changes::{self, FieldChange};
use crate::error::Error;
use crate::key::Key;
use crate::kind::{Kind, Typed};
use http::{Method, Request};
use kube::{Client, Resource};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::marker::PhantomData;
use std::sync::Arc;

/// Whether writes are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They are.
    #[default]
    Live,
    /// Everything runs but the writes; they are remembered as if they had been sent.
    DryRun,
}

/// What happens to what an object owns when it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// The object goes at once, what it owns is collected after it.
    Background,
    /// What it owns goes first.
    Foreground,
    /// What it owns stays.
    Orphan,
}

/// A kind of write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// A new object, or a post to a subresource.
    Create,
    /// The whole object anew.
    Update,
    /// Some fields.
    Patch,
    /// Some fields, server-side, in our own name.
    Apply,
    /// Gone.
    Delete,
}

impl Verb {
    fn word(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Apply => "apply",
            Verb::Delete => "delete",
        }
    }
}

/// A write that was made.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    /// What was done.
    pub verb: Verb,
    /// To an object of which kind.
    pub kind: Kind,
    /// Of which name.
    pub key: Key,
    /// Or to a part of it, as `status`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// What was sent; the values of Secrets are not in it.
    pub body: Value,
    /// What it changed, as far as the state before is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FieldChange>,
    /// The object's revision after the write; the object as it was for a delete.
    #[serde(skip)]
    pub revision: Revision,
    /// The object's UID.
    #[serde(skip)]
    pub uid: Option<String>,
}

/// A shared handle for writes. Each reconcile has its own.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    /// The name under which the API server remembers who set a field.
    manager: Arc<str>,
    mode: Mode,
    log: Arc<Mutex<Vec<Written>>>,
}

/// One write, before it is sent.
pub struct Draft {
    /// What to do.
    pub verb: Verb,
    /// To an object of which kind.
    pub kind: Kind,
    /// Of which name.
    pub key: Key,
    /// Or to a part of it, as `status`.
    pub subresource: Option<&'static str>,
    /// What to send.
    pub body: Value,
    /// Query parameters beyond those that follow from the verb.
    pub query: Vec<(&'static str, String)>,
    /// For patches: the media type.
    pub patch: Option<&'static str>,
    /// The object before the write, if it is known: it shows what the write changed.
    pub before: Option<Value>,
}

impl Draft {
    /// A write of an object, or of one of its subresources.
    pub fn new(verb: Verb, kind: Kind, key: Key, body: Value) -> Self {
        Draft {
            verb,
            kind,
            key,
            subresource: None,
            body,
            query: Vec::new(),
            patch: None,
            before: None,
        }
    }

    /// Says what the object was before the write.
    pub fn before(mut self, object: Value) -> Self {
        self.before = Some(object);
        self
    }

    /// Writes a subresource, as `status`.
    pub fn subresource(mut self, name: &'static str) -> Self {
        self.subresource = Some(name);
        self
    }
}

/// The object as the API server has it after a write. Most who write do not look at it, so it is decoded when it is
/// asked for.
pub struct Answer<K> {
    kind: Kind,
    key: Key,
    value: Value,
    of: PhantomData<fn() -> K>,
}

impl<K: DeserializeOwned> Answer<K> {
    /// The object.
    pub fn object(&self) -> Result<K, Error> {
        decode(&self.kind, &self.key, &self.value)
    }
}

impl<K> Answer<K> {
    /// The object, as it was sent.
    pub fn json(&self) -> &Value {
        &self.value
    }
}

impl Writer {
    /// A writer that sends with a client, in the name of a field manager.
    pub fn new(client: Client, manager: &str, mode: Mode) -> Self {
        Writer {
            client,
            manager: manager.into(),
            mode,
            log: Arc::default(),
        }
    }

    /// The same, with an empty memory: for a new reconcile.
    pub(crate) fn fresh(&self) -> Self {
        Writer {
            log: Arc::default(),
            ..self.clone()
        }
    }

    /// What was written.
    pub fn written(&self) -> Vec<Written> {
        self.log.lock().clone()
    }

    /// Gives up what was written: the reconcile is over.
    pub(crate) fn take_written(&self) -> Vec<Written> {
        std::mem::take(&mut *self.log.lock())
    }

    /// The field manager.
    pub fn manager(&self) -> &str {
        &self.manager
    }

    /// Creates an object. Give it a fixed name: a retry after a lost answer must not create a second one.
    pub async fn create<K: Typed + Serialize>(&self, object: &K) -> Result<Answer<K>, Error> {
        let draft = Draft::new(Verb::Create, Kind::of::<K>(), Key::of(object), body_of(object)?);
        self.send_typed(draft).await
    }

    /// Replaces an object. It carries the resourceVersion that was read, so that nobody's change is lost.
    pub async fn update<K: Typed + Serialize>(&self, object: &K) -> Result<Answer<K>, Error> {
        let draft = Draft::new(Verb::Update, Kind::of::<K>(), Key::of(object), body_of(object)?);
        self.send_typed(draft).await
    }

    /// Replaces an object's status, with the resourceVersion that was read.
    pub async fn update_status<K: Typed + Serialize>(&self, object: &K) -> Result<Answer<K>, Error> {
        let draft = Draft::new(Verb::Update, Kind::of::<K>(), Key::of(object), body_of(object)?);
        self.send_typed(draft.subresource("status")).await
    }

    /// Changes an object by a JSON merge patch; refused if the object is not the one that was read (by UID
    /// and resourceVersion).
    pub async fn patch<K: Typed>(&self, read: &K, patch: Value) -> Result<Answer<K>, Error> {
        self.merge(read, patch, None).await
    }

    /// Changes an object's status by a JSON merge patch; refused if the object is not the one that was read.
    pub async fn patch_status<K: Typed>(&self, read: &K, patch: Value) -> Result<Answer<K>, Error> {
        self.merge(read, patch, Some("status")).await
    }

    async fn merge<K: Typed>(
        &self,
        read: &K,
        patch: Value,
        subresource: Option<&'static str>,
    ) -> Result<Answer<K>, Error> {
        let mut patch = patch;
        pin(&mut patch, read.meta());
        let mut draft = Draft::new(Verb::Patch, Kind::of::<K>(), Key::of(read), patch);
        draft.patch = Some("application/merge-patch+json");
        draft.subresource = subresource;
        self.send_typed(draft).await
    }

    /// Applies an object server-side: only the fields that it has, in our field manager's name, by force.
    pub async fn apply<K: Typed + Serialize>(&self, object: &K) -> Result<Answer<K>, Error> {
        let draft = Draft::new(Verb::Apply, Kind::of::<K>(), Key::of(object), body_of(object)?);
        self.send_typed(draft).await
    }

    /// Deletes the object that was read: refused if it was changed or replaced since. Gone already is fine.
    pub async fn delete<K: Typed>(&self, read: &K, propagation: Propagation) -> Result<(), Error> {
        let meta = read.meta();
        let preconditions = json!({"uid": meta.uid, "resourceVersion": meta.resource_version});
        self.delete_dynamic(Kind::of::<K>(), Key::of(read), preconditions, propagation)
            .await
    }

    /// Deletes an object of any kind, with preconditions as in the API's DeleteOptions.
    pub async fn delete_dynamic(
        &self,
        kind: Kind,
        key: Key,
        preconditions: Value,
        propagation: Propagation,
    ) -> Result<(), Error> {
        let propagation = match propagation {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        };
        let body = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
            "preconditions": preconditions,
        });
        match self.send(Draft::new(Verb::Delete, kind, key, body)).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Posts to a subresource, as `binding` or `eviction`.
    pub async fn post_to(&self, kind: Kind, key: Key, subresource: &'static str, body: Value) -> Result<Value, Error> {
        self.send(Draft::new(Verb::Create, kind, key, body).subresource(subresource))
            .await
    }

    /// Reads an object from the API server, past the cache; none if it does not exist.
    pub async fn read<K: Typed>(&self, key: &Key) -> Result<Option<K>, Error> {
        let kind = Kind::of::<K>();
        match self.read_dynamic(&kind, key).await? {
            Some(value) => decode(&kind, key, &value).map(Some),
            None => Ok(None),
        }
    }

    /// Reads an object of any kind from the API server, past the cache; none if it does not exist.
    pub async fn read_dynamic(&self, kind: &Kind, key: &Key) -> Result<Option<Value>, Error> {
        let what = || format!("get {kind} {key}");
        let request = Request::get(kind.path_of(key)).body(Vec::new());
        let request = request.map_err(|error| Error::api(what(), kube::Error::HttpError(error)))?;
        match self.client.request::<Value>(request).await {
            Ok(value) => Ok(Some(value)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(Error::api(what(), error)),
        }
    }

    /// Sends any write. What the others do not cover is done with this.
    pub async fn send(&self, draft: Draft) -> Result<Value, Error> {
        let answer = match self.mode {
            Mode::DryRun => draft.body.clone(),
            Mode::Live => self.request(&draft).await?,
        };
        let meta = &answer["metadata"];
        let (revision, uid) = (
            Revision::parse(meta["resourceVersion"].as_str().unwrap_or_default()),
            meta["uid"].as_str().map(str::to_owned),
        );
        let mut changes = self.changes(&draft, &answer);
        let mut body = draft.body;
        changes::hide(&draft.kind, &mut body, &mut changes);
        self.log.lock().push(Written {
            revision,
            uid,
            verb: draft.verb,
            kind: draft.kind,
            key: draft.key,
            subresource: draft.subresource.map(str::to_owned),
            body,
            changes,
        });
        Ok(answer)
    }

    /// What a write changed. The answer is the truth, where there is one and the state before is known.
    fn changes(&self, draft: &Draft, answer: &Value) -> Vec<FieldChange> {
        let only = draft.subresource.unwrap_or_default();
        match (draft.verb, &draft.before, self.mode) {
            (Verb::Delete, ..) => Vec::new(),
            // Everything of a new object is new: its body says it all.
            (Verb::Create, ..) => Vec::new(),
            (_, Some(before), Mode::Live) => {
                let mut all = changes::between(before, answer);
                // A projected root has less than the answer, but its status is whole.
                let prefix = format!("/{only}");
                all.retain(|change| only.is_empty() || change.field.starts_with(&prefix));
                all
            }
            (Verb::Apply, None, _) => Vec::new(),
            (_, before, _) => changes::asked(before.as_ref(), &draft.body),
        }
    }

    async fn send_typed<K>(&self, draft: Draft) -> Result<Answer<K>, Error> {
        let (kind, key) = (draft.kind.clone(), draft.key.clone());
        let value = self.send(draft).await?;
        Ok(Answer {
            kind,
            key,
            value,
            of: PhantomData,
        })
    }

    fn query(&self, draft: &Draft) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if draft.verb != Verb::Delete {
            query.append_pair("fieldManager", &self.manager);
        }
        if draft.verb == Verb::Apply {
            query.append_pair("force", "true");
        }
        for (name, value) in &draft.query {
            query.append_pair(name, value);
        }
        query.finish()
    }

    async fn request(&self, draft: &Draft) -> Result<Value, Error> {
        let what = || {
            let sub = draft.subresource.map(|name| format!("/{name}")).unwrap_or_default();
            format!("{} {}{sub} {}", draft.verb.word(), draft.kind, draft.key)
        };
        let (method, media) = match draft.verb {
            Verb::Create => (Method::POST, "application/json"),
            Verb::Update => (Method::PUT, "application/json"),
            Verb::Delete => (Method::DELETE, "application/json"),
            Verb::Patch => (Method::PATCH, draft.patch.unwrap_or("application/merge-patch+json")),
            Verb::Apply => (Method::PATCH, "application/apply-patch+yaml"),
        };
        let mut path = match (draft.verb, draft.subresource) {
            (Verb::Create, None) => draft.kind.path(draft.key.namespace()),
            _ => draft.kind.path_of(&draft.key),
        };
        if let Some(subresource) = draft.subresource {
            path.push('/');
            path.push_str(subresource);
        }
        let bytes =
            serde_json::to_vec(&draft.body).map_err(|error| Error::api(what(), kube::Error::SerdeError(error)))?;
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}?{}", self.query(draft)))
            .header(http::header::CONTENT_TYPE, media)
            .header(http::header::ACCEPT, "application/json")
            .body(bytes)
            .map_err(|error| Error::api(what(), kube::Error::HttpError(error)))?;
        self.client
            .request::<Value>(request)
            .await
            .map_err(|error| Error::api(what(), error))
    }
}

/// A patch applies to the object that was read and to no other.
fn pin(patch: &mut Value, meta: &kube::core::ObjectMeta) {
    if let Some(body) = patch.as_object_mut() {
        let metadata = body.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("uid".to_owned(), json!(meta.uid));
            metadata.insert("resourceVersion".to_owned(), json!(meta.resource_version));
        }
    }
}

fn body_of<K: Serialize + Resource<DynamicType = ()>>(object: &K) -> Result<Value, Error> {
    serde_json::to_value(object)
        .map_err(|error| Error::api(format!("write {}", K::kind(&())), kube::Error::SerdeError(error)))
}

fn decode<K: DeserializeOwned>(kind: &Kind, key: &Key, value: &Value) -> Result<K, Error> {
    crate::decode(value).map_err(|error| Error::Undecodable {
        kind: Box::new(kind.clone()),
        key: key.clone(),
        message: error.to_string(),
    })
}
