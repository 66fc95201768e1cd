//! The paths of custom resources: which operations there are, what they take and what they answer.
//!
//! Parameters and their descriptions are those of a built-in resource, so that they never drift apart.

use super::custom::{REFERENCE, model};
use super::documents;
use crate::catalogue::Resource;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A built-in document that has every kind of path that a custom resource has, and the types they use.
const TEMPLATE: &str = "apis/autoscaling/v1";
const TEMPLATE_LIST: &str = "/apis/autoscaling/v1/namespaces/{namespace}/horizontalpodautoscalers";
const TEMPLATE_ALL: &str = "/apis/autoscaling/v1/horizontalpodautoscalers";
const TEMPLATE_ITEM: &str = "/apis/autoscaling/v1/namespaces/{namespace}/horizontalpodautoscalers/{name}";

pub const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// What all custom documents have in common.
pub struct Shared {
    pub schemas: BTreeMap<String, Value>,
    /// Query parameters of an operation by method and whether it is on a collection.
    list: Value,
    create: Value,
    delete_collection: Value,
    replace: Value,
    patch: Value,
    delete: Value,
    /// Parameters of a path: of the collection of all namespaces, and `namespace`, `name`, `pretty`.
    all: Value,
    item: Vec<Value>,
}

pub static SHARED: LazyLock<Shared> = LazyLock::new(|| {
    let mut template = documents::parsed_document(TEMPLATE);
    let mut take = |path: &str, method: &str| template.paths.get_mut(path).map_or(Value::Null, |p| p[method].take());
    let (list, create) = (take(TEMPLATE_LIST, "get"), take(TEMPLATE_LIST, "post"));
    let delete_collection = take(TEMPLATE_LIST, "delete");
    let (replace, patch) = (take(TEMPLATE_ITEM, "put"), take(TEMPLATE_ITEM, "patch"));
    let delete = take(TEMPLATE_ITEM, "delete");
    let all = take(TEMPLATE_ALL, "parameters");
    let item = take(TEMPLATE_ITEM, "parameters");
    let used = |name: &String| (name.starts_with(META) || name.starts_with(SCALE)) && !name.ends_with("WatchEvent");
    Shared {
        schemas: template.schemas.into_iter().filter(|(name, _)| used(name)).collect(),
        list: list["parameters"].clone(),
        create: create["parameters"].clone(),
        delete_collection: delete_collection["parameters"].clone(),
        replace: replace["parameters"].clone(),
        patch: patch["parameters"].clone(),
        delete: delete["parameters"].clone(),
        all,
        item: item.as_array().cloned().unwrap_or_default(),
    }
});

/// The path items of a custom resource.
pub fn paths(resource: &Resource) -> BTreeMap<String, Value> {
    let mut paths = BTreeMap::new();
    let root = format!("/apis/{}/{}", resource.group, resource.version);
    let here = match resource.namespaced {
        true => format!("{root}/namespaces/{{namespace}}/{}", resource.plural),
        false => format!("{root}/{}", resource.plural),
    };
    let own = model(resource, &resource.kind);
    let listed = model(resource, &resource.list_kind);
    let status = format!("{META}Status");
    let scope = |names: &[&str]| -> Value {
        let wanted = |p: &&Value| names.iter().any(|name| p["name"] == *name);
        let mut parameters: Vec<Value> = SHARED.item.iter().filter(wanted).cloned().collect();
        for parameter in parameters.iter_mut().filter(|p| p["name"] == "name") {
            parameter["description"] = format!("name of the {}", resource.kind).into();
        }
        parameters.into()
    };
    let namespace = if resource.namespaced { "namespace" } else { "" };
    let operation = |verb, sub, answer: &str| Operation::new(resource, verb, sub, answer);
    if resource.namespaced {
        let mut list = operation(&LIST, "", &listed).build();
        list["operationId"] = format!("{}ForAllNamespaces", operation_id(resource, "list", "", Scoped::No)).into();
        list.as_object_mut().map(|op| op.remove("parameters"));
        paths.insert(
            format!("{root}/{}", resource.plural),
            json!({"get": list, "parameters": SHARED.all}),
        );
    }
    paths.insert(
        here.clone(),
        json!({
            "get": operation(&LIST, "", &listed).build(),
            "post": operation(&CREATE, "", &own).reads(&own).build(),
            "delete": operation(&DELETE_COLLECTION, "", &status).build(),
            "parameters": scope(&[namespace, "pretty"]),
        }),
    );
    let item = scope(&["name", namespace, "pretty"]);
    let patch = format!("{META}Patch");
    let options = format!("{META}DeleteOptions");
    paths.insert(
        format!("{here}/{{name}}"),
        json!({
            "get": operation(&READ, "", &own).build(),
            "put": operation(&REPLACE, "", &own).reads(&own).build(),
            "patch": operation(&PATCH, "", &own).reads(&patch).build(),
            "delete": operation(&DELETE, "", &status).reads(&options).build(),
            "parameters": item,
        }),
    );
    for sub in resource
        .subresources
        .iter()
        .filter(|s| ["status", "scale"].contains(&s.name.as_str()))
    {
        let body = if sub.name == "scale" {
            SCALE.to_string()
        } else {
            own.clone()
        };
        paths.insert(
            format!("{here}/{{name}}/{}", sub.name),
            json!({
                "get": operation(&READ, &sub.name, &body).build(),
                "put": operation(&REPLACE, &sub.name, &body).reads(&body).build(),
                "patch": operation(&PATCH, &sub.name, &body).reads(&patch).build(),
                "parameters": item,
            }),
        );
    }
    paths
}

/// What an operation is called and what it answers.
struct Verb {
    name: &'static str,
    action: &'static str,
    codes: &'static [(&'static str, &'static str)],
    parameters: fn(&'static Shared) -> &'static Value,
}

const OK: (&str, &str) = ("200", "OK");
const CREATED: (&str, &str) = ("201", "Created");
const ACCEPTED: (&str, &str) = ("202", "Accepted");
const fn verb(
    name: &'static str,
    action: &'static str,
    codes: &'static [(&'static str, &'static str)],
    parameters: fn(&'static Shared) -> &'static Value,
) -> Verb {
    Verb {
        name,
        action,
        codes,
        parameters,
    }
}
static LIST: Verb = verb("list", "list", &[OK], |s| &s.list);
static CREATE: Verb = verb("create", "post", &[OK, CREATED, ACCEPTED], |s| &s.create);
static DELETE_COLLECTION: Verb = verb("deletecollection", "deletecollection", &[OK], |s| &s.delete_collection);
static READ: Verb = verb("read", "get", &[OK], |_| &Value::Null);
static REPLACE: Verb = verb("replace", "put", &[OK, CREATED], |s| &s.replace);
static PATCH: Verb = verb("patch", "patch", &[OK], |s| &s.patch);
static DELETE: Verb = verb("delete", "delete", &[OK, ACCEPTED], |s| &s.delete);

struct Operation<'a> {
    resource: &'a Resource,
    verb: &'static Verb,
    sub: &'a str,
    value: Value,
}

impl<'a> Operation<'a> {
    fn new(resource: &'a Resource, verb: &'static Verb, sub: &'a str, answer: &str) -> Self {
        let body = || json!({"schema": {"$ref": format!("{REFERENCE}{answer}")}});
        let mut responses = json!({"401": {"description": "Unauthorized"}});
        for (code, description) in verb.codes {
            let content = json!({"application/json": body(), "application/yaml": body()});
            responses[*code] = json!({"description": description, "content": content});
        }
        let of = if sub.is_empty() {
            String::new()
        } else {
            format!(" {sub} of")
        };
        let kind = &resource.kind;
        let description = match verb.name {
            "list" => format!("list objects of kind {kind}"),
            "deletecollection" => format!("delete collection of {kind}"),
            "patch" => format!("partially update{of} the specified {kind}"),
            "read" | "replace" => format!("{}{of} the specified {kind}", verb.name),
            other => format!("{other} {} {kind}", article(kind)),
        };
        let mut value = json!({
            "tags": [tag(resource)], "description": description,
            "operationId": operation_id(resource, verb.name, sub, Scoped::AsResource),
            "responses": responses,
            "x-kubernetes-action": verb.action,
            "x-kubernetes-group-version-kind": {
                "group": resource.group, "version": resource.version, "kind": resource.kind,
            },
        });
        let parameters = (verb.parameters)(&SHARED);
        if !parameters.is_null() {
            value["parameters"] = parameters.clone();
        }
        Operation {
            resource,
            verb,
            sub,
            value,
        }
    }

    fn reads(mut self, schema: &str) -> Self {
        let types: &[&str] = match self.verb.name {
            "patch" => &[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/apply-patch+yaml",
            ],
            _ => &["application/json", "application/yaml"],
        };
        let mut content = Map::new();
        for kind in types {
            content.insert(
                kind.to_string(),
                json!({"schema": {"$ref": format!("{REFERENCE}{schema}")}}),
            );
        }
        self.value["requestBody"] = json!({"content": content});
        if self.verb.name != "delete" {
            self.value["requestBody"]["required"] = true.into();
        }
        self
    }

    fn build(self) -> Value {
        debug_assert!(self.sub.is_empty() || self.resource.subresource(self.sub).is_some());
        self.value
    }
}

fn article(kind: &str) -> &'static str {
    match kind.starts_with(['A', 'E', 'I', 'O', 'U']) {
        true => "an",
        false => "a",
    }
}

/// `stableExampleCom_v1`.
fn tag(resource: &Resource) -> String {
    let name = titled(&resource.group);
    let mut letters = name.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_lowercase).collect();
    format!("{first}{}_{}", letters.as_str(), resource.version)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scoped {
    AsResource,
    No,
}

/// `readStableExampleComV1NamespacedCronTabStatus`.
fn operation_id(resource: &Resource, verb: &str, sub: &str, scoped: Scoped) -> String {
    let verb = if verb == "deletecollection" {
        "deleteCollection"
    } else {
        verb
    };
    let scope = if resource.namespaced && scoped == Scoped::AsResource {
        "Namespaced"
    } else {
        ""
    };
    let (group, version) = (titled(&resource.group), titled(&resource.version));
    format!("{verb}{group}{version}{scope}{}{}", resource.kind, titled(sub))
}

fn titled(name: &str) -> String {
    name.split(['.', '-', '/'])
        .map(|part| {
            let mut letters = part.chars();
            let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
            first + letters.as_str()
        })
        .collect()
}
