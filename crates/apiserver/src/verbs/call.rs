//! One request on one resource, with everything that its verb needs.

use crate::auth::User;
use crate::catalogue::{Catalogue, Resource, built_in};
use crate::error::{ApiError, GroupResource, Result};
use crate::server::body::{self, Body};
use crate::server::decode::{self, Decoded, FieldValidation, Mistakes};
use crate::server::negotiate::{self, Accepted};
use crate::server::query::Query;
use crate::server::request::ResourcePath;
use crate::server::{Shared, respond};
use crate::store::{Key, Prefix, Record, StoreError};
use bytes::Bytes;
use http::{HeaderMap, Response};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;
use stead_machinery::field::FieldError;

/// A request on a resource.
pub struct Call {
    pub shared: Arc<Shared>,
    pub catalogue: Arc<Catalogue>,
    pub resource: Arc<Resource>,
    /// Group and version of the resource, as objects carry them.
    pub api_version: String,
    pub path: ResourcePath,
    pub verb: &'static str,
    pub query: Query,
    pub headers: HeaderMap,
    pub user: User,
    pub accepted: Accepted,
    /// The connection itself, for what goes on after the answer: WebSockets, exec, port-forward.
    pub upgrade: Mutex<Option<hyper::upgrade::OnUpgrade>>,
    /// The time of the request: one for everything that it writes.
    pub now: Timestamp,
    /// Sent to the client as `Warning` headers.
    pub warnings: Mutex<Vec<String>>,
    /// What admission notes for the audit log.
    pub annotations: Mutex<Vec<(String, String)>>,
}

impl Call {
    pub fn group_resource(&self) -> GroupResource {
        self.resource.group_resource()
    }

    /// The namespace that keys of this request have: none for cluster-scoped kinds.
    pub fn namespace(&self) -> &str {
        match self.resource.namespaced {
            true => &self.path.namespace,
            false => "",
        }
    }

    /// The place of an object of this resource in the namespace of the request.
    pub fn key(&self, name: &str) -> Key {
        Key::new(self.resource.storage(), self.namespace(), name)
    }

    /// The same call as if its path named another namespace.
    pub fn in_namespace(&self, namespace: &str) -> Call {
        Call {
            shared: self.shared.clone(),
            catalogue: self.catalogue.clone(),
            resource: self.resource.clone(),
            api_version: self.api_version.clone(),
            path: ResourcePath {
                namespace: namespace.to_string(),
                ..self.path.clone()
            },
            verb: self.verb,
            query: self.query.clone(),
            headers: self.headers.clone(),
            user: self.user.clone(),
            accepted: self.accepted,
            upgrade: Mutex::new(None),
            now: self.now,
            warnings: Mutex::default(),
            annotations: Mutex::default(),
        }
    }

    /// The same call as if it were this verb on the object itself.
    pub fn of_main_resource(&self, verb: &'static str) -> Call {
        let mut call = self.in_namespace(&self.path.namespace);
        call.path.subresource = String::new();
        call.verb = verb;
        call
    }

    /// The place of an object of another resource in the namespace of the request.
    pub fn key_of(&self, resource: &str, name: &str) -> Key {
        Key::new(resource, self.path.namespace.as_str(), name)
    }

    /// All objects that the request's path covers.
    pub fn prefix(&self) -> Prefix {
        match self.namespace() {
            "" => Prefix::resource(self.resource.storage()),
            namespace => Prefix::namespace(self.resource.storage(), namespace),
        }
    }

    /// The stored object that the path names.
    pub async fn existing(&self) -> Result<Arc<Record>> {
        self.find(&self.path.name).await?.ok_or_else(|| self.not_found())
    }

    pub async fn find(&self, name: &str) -> Result<Option<Arc<Record>>> {
        let key = self.key(name);
        self.shared
            .store
            .get(&key)
            .await
            .map_err(|error| self.store_error(error, name))
    }

    pub fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.group_resource(), &self.path.name)
    }

    /// A refusal by the store as the client sees it.
    pub fn store_error(&self, error: StoreError, name: &str) -> ApiError {
        let resource = self.group_resource();
        match error {
            StoreError::Exists { .. } => ApiError::already_exists(&resource, name),
            StoreError::Conflict { .. } => ApiError::modified(&resource, name),
            StoreError::NotFound => ApiError::not_found(&resource, name),
            StoreError::Compacted { .. } => ApiError::expired("The resourceVersion for the provided list is too old."),
            StoreError::FutureRevision { current } => too_large_version(0, current.0),
            error @ (StoreError::Full { .. } | StoreError::Unavailable { .. }) => ApiError::internal(error),
        }
    }

    pub fn warn(&self, text: impl Into<String>) {
        let text = text.into();
        let mut warnings = self.warnings.lock();
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    /// An answer from stored bytes, or from what they are in the version and form that the client wants.
    pub async fn answer_record(&self, code: u16, record: &Record) -> Result<Response<Body>> {
        if self.accepted.form == negotiate::Form::AsIs && self.serves_as_stored(record) {
            return respond::json_bytes(code, record.json.clone(), self.accepted);
        }
        self.answer(code, &self.in_version(&record.value()).await?)
    }

    /// An answer from an object in the version of the request, in the form that the client wants.
    pub fn answer(&self, code: u16, object: &Value) -> Result<Response<Body>> {
        match self.accepted.form {
            negotiate::Form::AsIs => respond::object(code, object, self.accepted),
            negotiate::Form::Metadata => respond::object(code, &partial(object), self.accepted),
            negotiate::Form::Table => {
                let table = super::list::table(self, std::slice::from_ref(object), &object["metadata"]);
                respond::object(code, &table, self.accepted)
            }
        }
    }

    /// Whether stored bytes are in the version that the request asks for.
    pub fn serves_as_stored(&self, record: &Record) -> bool {
        if !crate::custom::is_current(&self.resource, record) {
            return false;
        }
        let rest = record.json.strip_prefix(b"{\"kind\":\"".as_slice());
        let rest = rest.and_then(|rest| rest.strip_prefix(self.resource.kind.as_bytes()));
        let rest = rest.and_then(|rest| rest.strip_prefix(b"\",\"apiVersion\":\"".as_slice()));
        let rest = match self.resource.group.as_str() {
            "" => rest,
            group => rest
                .and_then(|rest| rest.strip_prefix(group.as_bytes()))
                .and_then(|rest| rest.strip_prefix(b"/".as_slice())),
        };
        rest.and_then(|rest| rest.strip_prefix(self.resource.version.as_bytes()))
            .is_some_and(|rest| rest.starts_with(b"\""))
    }

    /// The object in the version of the request.
    pub async fn in_version(&self, stored: &Value) -> Result<Value> {
        let mut objects = self.all_in_version(vec![stored.clone()]).await?;
        Ok(objects.pop().unwrap_or_default())
    }

    /// Stored objects in the version of the request.
    pub async fn all_in_version(&self, mut objects: Vec<Value>) -> Result<Vec<Value>> {
        for object in &mut objects {
            crate::custom::fit_stored(self, object);
        }
        crate::custom::convert(self, &mut objects, &self.api_version).await?;
        for object in &mut objects {
            crate::kinds::convert::to(&self.resource, object);
        }
        Ok(objects)
    }

    /// Brings an object from one version of the request's kind into another.
    pub async fn convert(&self, object: &mut Value, from: &Resource, to: &Resource) -> Result<()> {
        if from.api_version() == to.api_version() || !object.is_object() {
            return Ok(());
        }
        match self.resource.origin_is_built_in() {
            true => crate::kinds::convert::to_storage(from, object),
            false => {
                let version = to.api_version();
                crate::custom::convert(self, std::slice::from_mut(object), &version).await?;
            }
        }
        crate::kinds::convert::to(to, object);
        Ok(())
    }

    /// Brings an object of the request's version into the one that is stored.
    pub async fn to_storage(&self, object: &mut Value) -> Result<()> {
        if let crate::catalogue::Origin::Custom(kind) = &self.resource.origin {
            let stored = format!("{}/{}", self.resource.group, kind.storage_version);
            crate::custom::convert(self, std::slice::from_mut(object), &stored).await?;
        }
        crate::kinds::convert::to_storage(&self.resource, object);
        crate::custom::fit_storage(self, object);
        Ok(())
    }

    /// Reads and decodes the body as the kind of the resource, heeding `fieldValidation`.
    pub async fn read_object(&self, body: Body, validation: FieldValidation) -> Result<Value> {
        let bytes = body::read(body, self.shared.limits.body).await?;
        let encoding = negotiate::body_encoding(&self.headers)?;
        let (group, version, kind, schema) = self.expected_kind();
        let decoded = decode::decode(&bytes, encoding, schema).map_err(|error| {
            // What the body says that it is comes before what is in it.
            let whole = decode::decode(&bytes, encoding, None);
            let kind_error = whole.ok().and_then(|whole| {
                let mut value = whole.value;
                self.check_kind(&mut value, group, version, kind, &bytes).err()
            });
            kind_error.unwrap_or_else(|| self.decode_failed(&bytes, version, kind, error))
        })?;
        let Decoded { mut value, mut strict } = decoded;
        if let (None, Some(why)) = (schema, crate::custom::mistyped_metadata(&self.resource, &value)) {
            let sent = value["apiVersion"].as_str().unwrap_or_default();
            let sent_version = sent.rsplit('/').next().unwrap_or_default();
            let sent_kind = value["kind"].as_str().unwrap_or_default();
            if !sent_version.is_empty() && !sent_kind.is_empty() {
                return Err(ApiError::bad_request(format!(
                    "{sent_kind} in version {sent_version:?} cannot be handled as a {kind}: {why}"
                )));
            }
        }
        self.check_kind(&mut value, group, version, kind, &bytes)?;
        if schema.is_none() {
            if let Some(why) = crate::custom::mistyped_metadata(&self.resource, &value) {
                return Err(self.decode_failed(&bytes, version, kind, decode::DecodeError::Type(why)));
            }
            strict.extend(crate::custom::prune(&self.resource, &mut value));
            stead_machinery::walk::drop_nulls(&mut value, self.resource.schema());
            let dropped = crate::custom::coerce_embedded(&self.resource, &mut value)
                .map_err(|why| self.decode_failed(&bytes, version, kind, decode::DecodeError::Type(why)))?;
            strict.extend(dropped);
        }
        self.heed(validation, version, kind, strict)?;
        Ok(value)
    }

    /// Group, version, kind and schema of what is sent to this path.
    fn expected_kind(&self) -> (&str, &str, &str, Option<stead_machinery::schema::SchemaRef<'_>>) {
        let resource = &*self.resource;
        match resource.subresource(&self.path.subresource) {
            Some(sub) if sub.kind != resource.kind => (
                &sub.group,
                &sub.version,
                &sub.kind,
                crate::catalogue::built_in::kind(&sub.group, &sub.version, &sub.kind),
            ),
            _ => {
                let schema = match resource.origin {
                    crate::catalogue::Origin::BuiltIn => Some(resource.schema()),
                    // Custom resources are pruned by their own rules, which keep more.
                    crate::catalogue::Origin::Custom(_) => None,
                };
                (&resource.group, &resource.version, &resource.kind, schema)
            }
        }
    }

    /// Fits what a patch has made to the kind: drops fields that it does not have, refuses wrong types.
    pub fn fit(&self, value: Value, validation: FieldValidation) -> Result<Value> {
        let mut fitted = self.fit_or(value, validation, Mistakes::PassOver, |shown, why| {
            let error = FieldError::invalid("patch", shown, why);
            ApiError::invalid("", "", "", &[error])
        })?;
        if !self.resource.origin_is_built_in() {
            crate::custom::check_type(&self.resource, &fitted)?;
            stead_machinery::walk::drop_nulls(&mut fitted, self.resource.schema());
        }
        Ok(fitted)
    }

    /// As [`Call::fit`], with other words for what does not fit; they get the document and the reason.
    pub fn fit_or(
        &self,
        value: Value,
        validation: FieldValidation,
        mistakes: Mistakes,
        refuse: impl Fn(String, String) -> ApiError,
    ) -> Result<Value> {
        let Resource { version, kind, .. } = &*self.resource;
        let schema = self.resource.origin_is_built_in().then(|| self.resource.schema());
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_string();
        let (sent, named) = (text("apiVersion"), text("kind"));
        if schema.is_some() && (sent != self.api_version || named != *kind) {
            return Err(refuse(value.to_string(), decode::unregistered(&named, &sent)));
        }
        // Only an error shows the document, so it is only written then.
        let kept = value.clone();
        let shown = |kept: &Value| kept.to_string();
        if let Some(why) = crate::custom::mistyped_metadata(&self.resource, &value) {
            return Err(refuse(shown(&kept), why));
        }
        let mut decoded =
            decode::decode_value(value, schema, mistakes).map_err(|error| refuse(shown(&kept), error.to_string()))?;
        decoded
            .strict
            .extend(crate::custom::prune(&self.resource, &mut decoded.value));
        let dropped = crate::custom::coerce_embedded(&self.resource, &mut decoded.value)
            .map_err(|why| refuse(shown(&kept), why))?;
        decoded.strict.extend(dropped);
        if validation == FieldValidation::Strict && !decoded.strict.is_empty() {
            let why = format!("strict decoding error: {}", decoded.strict.join(", "));
            return Err(refuse(shown(&kept), why));
        }
        self.heed(validation, version, kind, decoded.strict)?;
        Ok(decoded.value)
    }

    /// Warns of, refuses or ignores what strict decoding found.
    pub fn heed(&self, validation: FieldValidation, version: &str, kind: &str, strict: Vec<String>) -> Result<()> {
        match validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => strict.into_iter().for_each(|error| self.warn(error)),
            FieldValidation::Strict if strict.is_empty() => {}
            FieldValidation::Strict => return Err(decode::strict_error(version, kind, &strict)),
        }
        Ok(())
    }

    fn decode_failed(&self, bytes: &Bytes, version: &str, kind: &str, error: decode::DecodeError) -> ApiError {
        decode::decode_error(version, kind, bytes, &error)
    }

    /// The body must be of the kind and version that the path serves; what it leaves out is filled in.
    fn check_kind(&self, value: &mut Value, group: &str, version: &str, kind: &str, bytes: &[u8]) -> Result<()> {
        if value.is_null() {
            // Go reads null as an object of which nothing is said.
            *value = serde_json::json!({});
        }
        if !value.is_object() {
            return Err(decode::not_an_object(version, kind, bytes, value));
        }
        let expected = match group {
            "" => version.to_string(),
            group => format!("{group}/{version}"),
        };
        let sent_version = value["apiVersion"].as_str().unwrap_or_default().to_string();
        let sent_kind = value["kind"].as_str().unwrap_or_default().to_string();
        if !self.resource.origin_is_built_in() && kind == self.resource.kind {
            return self.check_custom_kind(value, &sent_version, &sent_kind, bytes);
        }
        if !sent_kind.is_empty() && sent_kind != kind {
            let (sent_group, sent) = split_version(&sent_version);
            let known = built_in::kind(sent_group, sent, &sent_kind);
            // The body is read as what it says that it is before it is found to be something else.
            let misread =
                known.and_then(|schema| decode::decode_value(value.clone(), Some(schema), Mistakes::PassOver).err());
            let why = match known.is_some() {
                true if misread.is_some() => misread.map(|error| error.to_string()).unwrap_or_default(),
                true => {
                    let package = match group {
                        "" => "core",
                        group => group.split('.').next().unwrap_or(group),
                    };
                    format!("converting ({sent}.{sent_kind}) to ({package}.{kind}): unknown conversion")
                }
                false => decode::unregistered(&sent_kind, &sent_version),
            };
            return Err(ApiError::bad_request(format!(
                "{sent_kind} in version {sent:?} cannot be handled as a {kind}: {why}"
            )));
        }
        if !sent_version.is_empty() && sent_version != expected {
            let (sent_group, sent) = split_version(&sent_version);
            return Err(ApiError::bad_request(
                match built_in::kind(sent_group, sent, kind).is_some() {
                    true => format!(
                        "the API version in the data ({sent_version}) does not match the expected API version ({expected})"
                    ),
                    false => format!(
                        "{kind} in version {sent:?} cannot be handled as a {kind}: {}",
                        decode::unregistered(kind, &sent_version)
                    ),
                },
            ));
        }
        value["apiVersion"] = expected.into();
        value["kind"] = kind.into();
        Ok(())
    }
}

impl Call {
    /// Objects of custom kinds must say what they are, and are what they say.
    fn check_custom_kind(&self, value: &Value, sent_version: &str, sent_kind: &str, bytes: &[u8]) -> Result<()> {
        let Resource { group, kind, .. } = &*self.resource;
        if sent_kind.is_empty() {
            let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(bytes));
            let error = decode::DecodeError::Syntax(why);
            return Err(decode::decode_error(&self.resource.version, kind, bytes, &error));
        }
        let is_another = sent_version != self.api_version || sent_kind != kind;
        if is_another && let Some(why) = crate::custom::mistyped_metadata(&self.resource, value) {
            // It is read before anybody asks what it is.
            let (_, version) = split_version(sent_version);
            return Err(ApiError::bad_request(format!(
                "{sent_kind} in version {version:?} cannot be handled as a {sent_kind}: {why}"
            )));
        }
        if sent_version != self.api_version {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({sent_version}) does not match the expected API version ({})",
                self.api_version
            )));
        }
        if sent_kind != kind {
            let error = FieldError::invalid("kind", sent_kind, format!("must be {kind}"));
            let name = super::object::name(value);
            return Err(ApiError::invalid(group, sent_kind, name, &[error]));
        }
        Ok(())
    }
}

/// Group and version of an apiVersion.
fn split_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// The metadata of an object alone.
pub fn partial(object: &Value) -> Value {
    serde_json::json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
    })
}

/// A resourceVersion that the server has not reached.
pub fn too_large_version(wanted: u64, current: u64) -> ApiError {
    ApiError::new(
        504,
        "Timeout",
        format!("Timeout: Too large resource version: {wanted}, current: {current}"),
    )
    .with_details(serde_json::json!({
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }))
}
