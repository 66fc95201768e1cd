//! The frames of a watch: `{"type":"ADDED","object":{...}}`, one a line.

use crate::error::ApiError;
use crate::server::negotiate::{Accepted, Encoding, Form};
use crate::store::{EventKind, Record, Revision};
use crate::verbs::Call;
use crate::verbs::call::partial;
use crate::verbs::object;
use serde_json::{Value, json};

/// Whether a bookmark ends the initial part of a streaming list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialEnd {
    No,
    Yes,
}

/// Writes the events of one watch.
pub struct Frames {
    accepted: Accepted,
    /// Column definitions go with the first Table of a watch only.
    columns_sent: bool,
}

impl Frames {
    pub fn new(accepted: Accepted) -> Self {
        Frames {
            accepted,
            columns_sent: false,
        }
    }

    pub fn media_type(&self) -> &'static str {
        match self.accepted.encoding {
            Encoding::Json => "application/json",
            Encoding::Yaml => "application/yaml;stream=watch",
        }
    }

    pub async fn event(
        &mut self,
        call: &Call,
        kind: EventKind,
        record: &Record,
        out: &mut Vec<u8>,
    ) -> Result<(), ApiError> {
        let word = match kind {
            EventKind::Added => "ADDED",
            EventKind::Modified => "MODIFIED",
            EventKind::Deleted => "DELETED",
        };
        if self.accepted.form == Form::AsIs && self.accepted.encoding == Encoding::Json && call.serves_as_stored(record)
        {
            out.reserve(record.json.len() + 64);
            out.extend_from_slice(b"{\"type\":\"");
            out.extend_from_slice(word.as_bytes());
            out.extend_from_slice(b"\",\"object\":");
            out.extend_from_slice(&record.json);
            out.extend_from_slice(b"}\n");
            return Ok(());
        }
        let object = call.in_version(&record.value()).await?;
        self.object(call, word, object, out);
        Ok(())
    }

    /// An object that stopped matching: its last matching state, at the revision at which it stopped.
    pub async fn left(
        &mut self,
        call: &Call,
        previous: &Record,
        revision: Revision,
        out: &mut Vec<u8>,
    ) -> Result<(), ApiError> {
        let mut object = call.in_version(&previous.value()).await?;
        object::set_meta(&mut object, "resourceVersion", &revision.to_string());
        self.object(call, "DELETED", object, out);
        Ok(())
    }

    pub fn bookmark(&mut self, call: &Call, revision: Revision, end: InitialEnd, out: &mut Vec<u8>) {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if end == InitialEnd::Yes {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, version) = match self.accepted.form {
            Form::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1".to_string()),
            Form::AsIs | Form::Table => (call.resource.kind.as_str(), call.resource.api_version()),
        };
        let object = match self.accepted.form {
            Form::Table => {
                json!({"metadata": {"resourceVersion": revision.to_string(), "annotations": metadata["annotations"]}})
            }
            _ => json!({"kind": kind, "apiVersion": version, "metadata": metadata}),
        };
        match self.accepted.form {
            Form::Table => {
                let mut bookmark = json!({
                    "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": revision.to_string()},
                    "columnDefinitions": null, "rows": [],
                });
                if end == InitialEnd::Yes {
                    let row =
                        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata});
                    bookmark["rows"] = json!([{"cells": [], "object": row}]);
                }
                self.write("BOOKMARK", &bookmark, out);
            }
            _ => self.write("BOOKMARK", &object, out),
        }
    }

    pub fn error(&mut self, _call: &Call, error: &ApiError, out: &mut Vec<u8>) {
        self.write("ERROR", &error.to_status(), out);
    }

    fn object(&mut self, call: &Call, word: &str, object: Value, out: &mut Vec<u8>) {
        match self.accepted.form {
            Form::AsIs => self.write(word, &object, out),
            Form::Metadata => self.write(word, &partial(&object), out),
            Form::Table => {
                let metadata = object["metadata"].clone();
                let mut table = super::super::list::table(call, &[object], &metadata);
                if std::mem::replace(&mut self.columns_sent, true) {
                    table["columnDefinitions"] = Value::Null;
                }
                self.write(word, &table, out);
            }
        }
    }

    fn write(&self, word: &str, object: &Value, out: &mut Vec<u8>) {
        let frame = json!({"type": word, "object": object});
        match self.accepted.encoding {
            Encoding::Json => {
                // Writing into memory cannot fail.
                let _ = serde_json::to_writer(&mut *out, &frame);
                out.push(b'\n');
            }
            Encoding::Yaml => {
                let text = serde_saphyr::to_string(&frame).unwrap_or_default();
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(b"---\n");
            }
        }
    }
}
