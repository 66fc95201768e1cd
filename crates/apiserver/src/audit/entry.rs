//! One audited request, and the Event that it becomes.

use super::Level;
use crate::auth::{User, user_info};
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// What is known of a request when it has been answered.
#[derive(Debug, Clone)]
pub struct Entry {
    pub id: String,
    pub verb: String,
    /// Path and query as sent.
    pub uri: String,
    /// Who sent it.
    pub user: User,
    /// Whom it ran as, where that is another one.
    pub impersonated: Option<User>,
    pub source: Option<IpAddr>,
    pub user_agent: String,
    pub object: Option<ObjectReference>,
    pub body: RequestBody,
    pub code: u16,
    /// The message and reason of a refusal.
    pub failure: Option<(String, String)>,
    pub annotations: Annotations,
    pub received: Timestamp,
    pub answered: Timestamp,
}

/// What admission noted of a request, for the log alone. It travels beside the answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Annotations(pub Vec<(String, String)>);

/// The object that a request names in its path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectReference {
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

/// The body of a request, as far as the log may see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RequestBody {
    #[default]
    None,
    Json(Bytes),
    Protobuf(Bytes),
}

impl RequestBody {
    /// Its bytes.
    pub fn len(&self) -> usize {
        match self {
            RequestBody::None => 0,
            RequestBody::Json(bytes) | RequestBody::Protobuf(bytes) => bytes.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Resources whose bodies hold credentials, whatever the level.
const SECRET: [(&str, &str); 5] = [
    ("secrets", ""),
    ("serviceaccounts", "token"),
    ("tokenreviews", ""),
    ("tokenrequests", ""),
    ("certificatesigningrequests", ""),
];

impl Entry {
    /// The Event of stage ResponseComplete. `lost` entries before this one are missing.
    pub fn event(&self, level: Level, lost: u64) -> Value {
        let body = self.parsed_body();
        let mut event = Map::new();
        let mut put = |name: &str, value: Value| {
            event.insert(name.to_string(), value);
        };
        put("kind", "Event".into());
        put("apiVersion", "audit.k8s.io/v1".into());
        put(
            "level",
            match level {
                Level::Metadata => "Metadata".into(),
                Level::Request => "Request".into(),
            },
        );
        put("auditID", self.id.as_str().into());
        put("stage", "ResponseComplete".into());
        put("requestURI", self.uri.as_str().into());
        put("verb", self.verb.as_str().into());
        put("user", user_info(&self.user));
        if let Some(user) = &self.impersonated {
            put("impersonatedUser", user_info(user));
        }
        put(
            "sourceIPs",
            self.source.iter().map(ToString::to_string).collect::<Vec<_>>().into(),
        );
        if !self.user_agent.is_empty() {
            put("userAgent", self.user_agent.as_str().into());
        }
        if let Some(object) = &self.object {
            put("objectRef", object.to_value(body.as_ref()));
        }
        put("responseStatus", self.status());
        if let (Level::Request, false, Some(body)) = (level, self.secret(), body) {
            put("requestObject", body);
        }
        put("requestReceivedTimestamp", micros(self.received).into());
        put("stageTimestamp", micros(self.answered).into());
        let mut annotations = Map::new();
        for (key, value) in &self.annotations.0 {
            annotations.insert(key.clone(), value.as_str().into());
        }
        if lost > 0 {
            annotations.insert("audit.stead.dev/lost-before".to_string(), lost.to_string().into());
        }
        if !annotations.is_empty() {
            put("annotations", Value::Object(annotations));
        }
        Value::Object(event)
    }

    fn parsed_body(&self) -> Option<Value> {
        match &self.body {
            RequestBody::None => None,
            RequestBody::Json(bytes) => serde_json::from_slice(bytes).ok(),
            RequestBody::Protobuf(bytes) => crate::protobuf::decode(bytes).ok(),
        }
    }

    fn secret(&self) -> bool {
        self.object.as_ref().is_some_and(|object| {
            let named = |(resource, subresource): &(&str, &str)| {
                *resource == object.resource && (subresource.is_empty() || *subresource == object.subresource)
            };
            SECRET.iter().any(named)
        })
    }

    fn status(&self) -> Value {
        let mut status = json!({"metadata": {}, "code": self.code});
        if let Some((message, reason)) = &self.failure {
            status["status"] = "Failure".into();
            status["message"] = message.as_str().into();
            status["reason"] = reason.as_str().into();
        }
        status
    }
}

impl ObjectReference {
    /// A create names its object in the body alone.
    fn to_value(&self, body: Option<&Value>) -> Value {
        let from_body = |field: &str| {
            let metadata = body.and_then(|body| body.get("metadata"))?;
            metadata.get(field)?.as_str()
        };
        let name = match self.name.as_str() {
            "" => from_body("name").unwrap_or_default(),
            name => name,
        };
        let parts = [
            ("resource", self.resource.as_str()),
            ("namespace", self.namespace.as_str()),
            ("name", name),
            ("uid", from_body("uid").unwrap_or_default()),
            ("apiGroup", self.group.as_str()),
            ("apiVersion", self.version.as_str()),
            ("resourceVersion", from_body("resourceVersion").unwrap_or_default()),
            ("subresource", self.subresource.as_str()),
        ];
        let filled = parts.iter().filter(|(_, value)| !value.is_empty());
        filled
            .map(|(name, value)| ((*name).to_string(), Value::from(*value)))
            .collect()
    }
}

fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}
