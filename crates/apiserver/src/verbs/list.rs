//! Lists: stored bytes put one behind the other, in pages if the client wants them.

pub mod token;

use super::Call;
use super::call::{partial, too_large_version};
use super::encode::item_start;
use super::list_options::{ListOptions, Version, Watching};
use crate::error::{ApiError, Result};
use crate::server::body::{self, Body};
use crate::server::negotiate::{Encoding, Form};
use crate::server::respond::{self, GZIP_THRESHOLD};
use crate::store::{Key, ListAt, Prefix, Record, Revision, StoreError, Window};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderValue, Response};
use serde_json::{Value, json};
use std::io::Write;
use std::sync::Arc;
use token::Token;

/// Bytes that one piece of a long list has, so that a list of any length needs little memory at a time.
const CHUNK: usize = 64 * 1024;

/// What a list found.
pub struct Listed {
    pub records: Vec<Arc<Record>>,
    pub revision: Revision,
    pub continuation: Option<String>,
    pub remaining: Option<usize>,
}

pub async fn list(call: &Call) -> Result<Response<Body>> {
    let options = ListOptions::parse(&call.resource, &call.query, Watching::No)?;
    let listed = read(call, &options).await?;
    answer(call, listed).await
}

/// Reads the objects that a list asks for.
pub async fn read(call: &Call, options: &ListOptions) -> Result<Listed> {
    let prefix = prefix(call, options);
    let (at, after, shown) = start(call, options)?;
    if let ListAt::Exact(revision) | ListAt::NotOlderThan(revision) = at {
        wait_for(call, revision).await?;
    }
    // With `0` the whole list is at hand, so Kubernetes does not bother with pages.
    let limit = match options.version {
        Version::Any if options.continuation.is_empty() => None,
        _ => options.limit,
    };
    let mut listed = Listed {
        records: Vec::new(),
        revision: Revision::default(),
        continuation: None,
        remaining: None,
    };
    let mut at = at;
    let mut after = after;
    loop {
        let window = Window {
            after: after.as_ref(),
            limit,
        };
        let page = call
            .shared
            .store
            .list(&prefix, at, window)
            .await
            .map_err(|error| list_error(call, options, error))?;
        listed.revision = page.revision;
        at = ListAt::Exact(page.revision);
        let mut full = false;
        let last = page.records.last().map(|record| Key::clone(&record.key));
        for record in page.records {
            if !options.selection.is_everything() && !options.selection.matches(&call.resource, &record) {
                continue;
            }
            if limit.is_some_and(|limit| listed.records.len() == limit) {
                full = true;
                break;
            }
            listed.records.push(record);
        }
        let more = full || page.more;
        if !more {
            break;
        }
        if full || limit.is_some_and(|limit| listed.records.len() == limit) {
            paginate(call, options, &prefix, &mut listed)?;
            break;
        }
        after = last;
    }
    if let Some(shown) = shown {
        listed.revision = shown;
    }
    Ok(listed)
}

/// Notes where the next page begins, and how much there is to come.
fn paginate(call: &Call, options: &ListOptions, prefix: &Prefix, listed: &mut Listed) -> Result<()> {
    let Some(last) = listed.records.last() else {
        return Ok(());
    };
    let token = Token {
        revision: Some(listed.revision),
        after: Key::clone(&last.key),
    };
    listed.continuation = Some(token.encode(call.namespace()));
    // A selector would have to be applied to everything that follows, just to count it.
    if options.selection.is_everything() {
        let counted = call.shared.store.count_after(prefix, listed.revision, Some(&last.key));
        listed.remaining = counted.ok();
    }
    Ok(())
}

fn prefix(call: &Call, options: &ListOptions) -> Prefix {
    match options.selection.name() {
        Some(name) if !call.resource.namespaced || !call.namespace().is_empty() => Prefix::object(&call.key(name)),
        _ => call.prefix(),
    }
}

/// Where the list begins: its state, the key to begin behind, and the revision to show instead of the real one.
fn start(call: &Call, options: &ListOptions) -> Result<(ListAt, Option<Key>, Option<Revision>)> {
    if options.continuation.is_empty() {
        let at = match options.version {
            Version::Unset => ListAt::Latest,
            Version::Any => ListAt::Any,
            Version::Exact(revision) => ListAt::Exact(revision),
            Version::NotOlderThan(revision) => ListAt::NotOlderThan(revision),
        };
        return Ok((at, None, None));
    }
    let token = Token::decode(&options.continuation, &call.resource.storage(), call.namespace())?;
    if !matches!(options.version, Version::Unset | Version::Any) {
        return Err(ApiError::bad_request(
            "specifying resource version is not allowed when using continue",
        ));
    }
    Ok(match token.revision {
        Some(revision) => (ListAt::Exact(revision), Some(token.after), None),
        // The rest of a list that has expired, as it is now: the client was told that it is inconsistent.
        None => (ListAt::Latest, Some(token.after), None),
    })
}

fn list_error(call: &Call, options: &ListOptions, error: StoreError) -> ApiError {
    match error {
        StoreError::Compacted { .. } if !options.continuation.is_empty() => {
            let inconsistent = Token::decode(&options.continuation, &call.resource.storage(), call.namespace())
                .map(|token| {
                    Token {
                        revision: None,
                        ..token
                    }
                    .encode(call.namespace())
                })
                .unwrap_or_default();
            expired_continuation(&inconsistent)
        }
        other => call.store_error(other, ""),
    }
}

fn expired_continuation(token: &str) -> ApiError {
    ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    )
    .with_list_continue(token)
}

/// Waits a little for a revision that is not there yet.
pub async fn wait_for(call: &Call, revision: Revision) -> Result<()> {
    let store = &call.shared.store;
    if store.revision() >= revision {
        return Ok(());
    }
    let reached = tokio::time::timeout(call.shared.limits.freshness, store.reached(revision)).await;
    reached.map_err(|_| too_large_version(revision.0, store.revision().0))
}

async fn answer(call: &Call, listed: Listed) -> Result<Response<Body>> {
    let mut metadata = list_metadata(&listed);
    if listed.continuation.is_none() && super::selection::is_custom(&call.resource) && call.accepted.form == Form::AsIs
    {
        // Lists of custom kinds always have the field.
        metadata["continue"] = "".into();
    }
    if call.accepted.form == Form::AsIs && call.accepted.encoding == Encoding::Json && !call.accepted.pretty {
        let items = items(call, listed.records).await?;
        return Ok(stream(call, items, &metadata));
    }
    let stored = listed.records.iter().map(|record| (*record.value()).clone()).collect();
    let objects = call.all_in_version(stored).await?;
    let value = match call.accepted.form {
        Form::Table => table(call, &objects, &metadata),
        Form::Metadata => json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            // Go writes an empty list that nobody made as null.
            "items": match objects.is_empty() {
                true => Value::Null,
                false => objects.iter().map(partial).collect(),
            },
        }),
        Form::AsIs => json!({
            "kind": call.resource.list_kind, "apiVersion": call.resource.api_version(), "metadata": metadata,
            "items": objects.into_iter().map(|object| item(call, object)).collect::<Vec<_>>(),
        }),
    };
    respond::object(200, &value, call.accepted)
}

fn list_metadata(listed: &Listed) -> Value {
    let mut metadata = json!({"resourceVersion": listed.revision.to_string()});
    if let Some(token) = &listed.continuation {
        metadata["continue"] = token.as_str().into();
    }
    if let Some(remaining) = listed.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    metadata
}

/// Items of built-in kinds carry no kind of their own, since the list names it.
pub fn item(call: &Call, mut object: Value) -> Value {
    if let (false, Value::Object(map)) = (super::selection::is_custom(&call.resource), &mut object) {
        map.remove("kind");
        map.remove("apiVersion");
    }
    object
}

/// Objects as the rows of a Table.
pub fn table(call: &Call, objects: &[Value], metadata: &Value) -> Value {
    let mut table = crate::kinds::render_table(call, objects);
    let mut shown = serde_json::Map::new();
    for field in ["resourceVersion", "continue", "remainingItemCount"] {
        if let Some(value) = metadata.get(field) {
            shown.insert(field.to_string(), value.clone());
        }
    }
    table["metadata"] = Value::Object(shown);
    table
}

/// An object of a list, as it is sent.
enum Item {
    /// Without the bytes before this place.
    Stored(Arc<Record>, usize),
    Made(Bytes),
}

impl Item {
    fn json(&self) -> &[u8] {
        match self {
            Item::Stored(record, start) => &record.json[*start..],
            Item::Made(bytes) => bytes,
        }
    }

    /// Whether the brace that an object begins with went with the bytes that are left out.
    fn lost_brace(&self) -> bool {
        matches!(self, Item::Stored(_, start) if *start > 0)
    }
}

/// What is stored as the request wants it is sent as it is; one object that is not makes no work for the others. Those
/// that are not are converted together, for a webhook is asked once for all of them.
async fn items(call: &Call, records: Vec<Arc<Record>>) -> Result<Vec<Item>> {
    let keep_kind = super::selection::is_custom(&call.resource);
    let stored = |record: Arc<Record>| {
        let start = if keep_kind { 0 } else { item_start(&record.json) };
        Item::Stored(record, start)
    };
    let others = records.iter().filter(|record| !call.serves_as_stored(record));
    let others: Vec<Value> = others.map(|record| (*record.value()).clone()).collect();
    let mut made = call.all_in_version(others).await?.into_iter();
    let items = records.into_iter().map(|record| match call.serves_as_stored(&record) {
        true => stored(record),
        false => {
            let object = item(call, made.next().unwrap_or_default());
            Item::Made(object.to_string().into())
        }
    });
    Ok(items.collect())
}

/// A list sent as a stream of pieces, each made when the client is ready for it.
fn stream(call: &Call, items: Vec<Item>, metadata: &Value) -> Response<Body> {
    let head = format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
        call.resource.list_kind,
        call.resource.api_version(),
    );
    // Each item loses its first bytes, gains a brace if it lost one, and all but the first have a comma.
    let length: usize = items
        .iter()
        .map(|item| item.json().len() + usize::from(item.lost_brace()) + 1)
        .sum::<usize>()
        .saturating_sub(usize::from(!items.is_empty()))
        + head.len()
        + b"]}\n".len();
    let gzip = call.accepted.gzip && length > GZIP_THRESHOLD;
    let mut pieces = Pieces {
        items: items.into_iter(),
        head: Some(head),
        done: false,
    };
    if length <= CHUNK {
        let bytes: Vec<u8> = pieces.flat_map(|piece| piece.to_vec()).collect();
        return respond::finish(200, "application/json", bytes.into(), false);
    }
    let mut response = respond::finish(200, "application/json", Bytes::new(), false);
    if gzip {
        response.headers_mut().remove("content-length");
        response
            .headers_mut()
            .insert("content-encoding", HeaderValue::from_static("gzip"));
        response
            .headers_mut()
            .append("vary", HeaderValue::from_static("Accept-Encoding"));
        let mut encoder = Some(GzEncoder::new(Vec::new(), Compression::fast()));
        let compressed = std::iter::from_fn(move || {
            let mut current = encoder.take()?;
            loop {
                match pieces.next() {
                    None => return current.finish().ok().map(Bytes::from),
                    Some(piece) => {
                        current.write_all(&piece).ok()?;
                        if current.get_ref().len() >= CHUNK / 4 {
                            let out = std::mem::take(current.get_mut());
                            encoder = Some(current);
                            return Some(Bytes::from(out));
                        }
                    }
                }
            }
        });
        *response.body_mut() = body::stream(futures::stream::iter(compressed));
    } else {
        response
            .headers_mut()
            .insert("content-length", HeaderValue::from(length as u64));
        *response.body_mut() = body::stream(futures::stream::iter(pieces));
    }
    response
}

/// The pieces of a list.
struct Pieces {
    items: std::vec::IntoIter<Item>,
    /// What comes before the first item; taken with the first piece.
    head: Option<String>,
    done: bool,
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let mut piece = Vec::with_capacity(CHUNK + 4096);
        let mut first = false;
        if let Some(head) = self.head.take() {
            piece.extend_from_slice(head.as_bytes());
            first = true;
        }
        while piece.len() < CHUNK {
            let Some(item) = self.items.next() else {
                piece.extend_from_slice(b"]}\n");
                self.done = true;
                break;
            };
            if !std::mem::take(&mut first) {
                piece.push(b',');
            }
            if item.lost_brace() {
                piece.push(b'{');
            }
            piece.extend_from_slice(item.json());
        }
        Some(piece.into())
    }
}
