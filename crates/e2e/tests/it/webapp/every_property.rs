//! W12: every property of the spec, mutated in turn.
//!
//! The properties and their values come from the definition's own schema; the API server judges which values are
//! valid. No controller runs here: what counts is what the operator makes of a spec, and the children of a changed
//! application must be those of one that was installed so.

use super::stage::{Stage, foreign, install};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::{Client, ResourceExt};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;
use stead_apis::WebApp;
use stead_test::wait::until;
use stead_webapp::resources::revision::wanted_hash;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(60);
const WORKERS: usize = 6;
/// How far the walk goes into types that are Kubernetes' own.
const DEPTH: usize = 3;
/// The parts of the spec whose types are ours, which are walked to their ends.
const OURS: &[&str] = &[
    "strategy",
    "ingress",
    "route",
    "network",
    "disruption",
    "sleep",
    "recovery",
    "monitoring",
];
/// How many of the strings are tried beside the one that is meant.
const SIMPLE: usize = 6;

/// Strings that are valid somewhere: the server says where.
const STRINGS: &[&str] = &[
    "data",
    "other",
    "nginx:1.26",
    "/etc/data",
    "data.example.com",
    "http",
    "0 20 * * *",
    "Europe/Berlin",
    "64Mi",
    "Exists",
    "In",
    "ScheduleAnyway",
    "Resource",
    "Utilization",
    "Always",
    "metadata.name",
    "limits.cpu",
    "v1",
    "data=1",
];
const KEYS: &[&str] = &["example.com/data", "cpu"];

/// A place in the schema.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Field(String),
    Item,
}

/// Specs to change: some properties make sense only beside others.
fn bases() -> Vec<Value> {
    vec![
        json!({"image": "nginx:1.25", "replicas": 2}),
        json!({"image": "nginx:1.25", "replicas": 2, "volumes": [{"name": "data", "emptyDir": {}}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "ports": [{"name": "http", "containerPort": 8080}],
            "strategy": {"type": "Canary", "canary": {"steps": [{"percent": 10}]}}}),
        json!({"image": "nginx:1.25", "replicas": 2,
            "env": [{"name": "data", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "envFrom": [{"configMapRef": {"name": "data"}}],
            "tolerations": [{"key": "data", "operator": "Equal", "value": "data", "effect": "NoExecute"}],
            "volumes": [{"name": "data", "secret": {"secretName": "data"}}],
            "probes": {"liveness": probe(), "readiness": probe(), "startup": probe()},
            "autoscaling": {"maxReplicas": 5, "metrics": [{"type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]},
            "initContainers": [helper("init")], "sidecars": [helper("beside")]}),
    ]
}

fn probe() -> Value {
    json!({"tcpSocket": {"port": 8080}})
}

/// A container beside the application's own; as an init container it is one that goes on.
fn helper(name: &str) -> Value {
    let mut helper = json!({"name": name, "image": "busybox:1.36",
        "env": [{"name": "data", "value": "data"}], "envFrom": [{"configMapRef": {"name": "data"}}],
        "ports": [{"containerPort": 9090}], "resources": {"limits": {"cpu": "1"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}], "securityContext": {"runAsUser": 1000},
        "livenessProbe": probe(), "readinessProbe": probe(), "startupProbe": probe(),
        "lifecycle": {"preStop": {"exec": {"command": ["data"]}}}});
    if name == "init" {
        helper["restartPolicy"] = "Always".into();
    }
    helper
}

/// Whether a spec has what is around a place.
fn surrounds(spec: &Value, place: &[Step]) -> bool {
    let around = &place[..place.len() - 1];
    let inner = around.iter().try_fold(spec, |value, step| match step {
        Step::Field(name) => value.get(name),
        Step::Item => value.get(0),
    });
    inner.is_some()
}

fn schema() -> Value {
    let definition = serde_json::to_value(&stead_apis::definitions::all()[0]).expect("JSON");
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone()
}

/// Every property, down to a depth.
fn properties(schema: &Value, place: &[Step], found: &mut Vec<Vec<Step>>) {
    let depth = place.iter().filter(|step| matches!(step, Step::Field(_))).count();
    let ours = matches!(place.first(), Some(Step::Field(name)) if OURS.contains(&name.as_str()));
    if depth >= DEPTH && !ours {
        return;
    }
    if let Some(fields) = schema["properties"].as_object() {
        for (name, inner) in fields {
            let mut place = place.to_vec();
            place.push(Step::Field(name.clone()));
            found.push(place.clone());
            properties(inner, &place, found);
        }
    }
    if schema["items"].is_object() {
        let mut place = place.to_vec();
        place.push(Step::Item);
        properties(&schema["items"], &place, found);
    }
}

/// A value that the schema allows, as far as it can say so.
fn value(schema: &Value, variant: usize) -> Value {
    if let Some(words) = schema["enum"].as_array() {
        return words[variant % words.len()].clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return match variant % 3 {
            0 => json!(2),
            1 => json!("30%"),
            _ => json!("64Mi"),
        };
    }
    match schema["type"].as_str().unwrap_or("object") {
        "boolean" => json!(variant.is_multiple_of(2)),
        "integer" | "number" => {
            let least = schema["minimum"].as_f64().unwrap_or(1.0) as i64;
            json!(least + 1 + variant as i64 % 3)
        }
        "string" if schema["format"] == "date-time" => json!("2026-01-01T00:00:00Z"),
        "string" => json!(STRINGS[variant % STRINGS.len()]),
        "array" => json!([value(&schema["items"], variant)]),
        _ => match schema["additionalProperties"].as_object() {
            Some(_) => {
                let key = KEYS[variant % KEYS.len()];
                json!({key: value(&schema["additionalProperties"], variant)})
            }
            None => Value::Object(required(schema, variant)),
        },
    }
}

fn required(schema: &Value, variant: usize) -> Map<String, Value> {
    let names = schema["required"].as_array().into_iter().flatten();
    names
        .filter_map(|name| {
            let name = name.as_str()?;
            Some((name.to_string(), value(&schema["properties"][name], variant)))
        })
        .collect()
}

/// The base with another value at a place, and whatever the place needs around it.
fn mutated(schema: &Value, base: Option<&Value>, place: &[Step], (target, around): (usize, usize)) -> Value {
    match place.split_first() {
        None => {
            let new = value(schema, target);
            // An object is changed by what is in it; alone it is only there or not.
            match (base, new) {
                (Some(Value::Object(old)), Value::Object(new)) => {
                    let mut all = old.clone();
                    all.extend(new);
                    Value::Object(all)
                }
                (_, new) => new,
            }
        }
        Some((Step::Field(name), rest)) => {
            let mut fields = match base {
                Some(Value::Object(fields)) => fields.clone(),
                _ => required(schema, around),
            };
            let inner = mutated(&schema["properties"][name], fields.get(name), rest, (target, around));
            fields.insert(name.clone(), inner);
            Value::Object(fields)
        }
        Some((Step::Item, rest)) => {
            let first = base.and_then(|list| list.get(0));
            json!([mutated(&schema["items"], first, rest, (target, around))])
        }
    }
}

fn shown(place: &[Step]) -> String {
    let parts: Vec<&str> = place
        .iter()
        .map(|step| match step {
            Step::Field(name) => name.as_str(),
            Step::Item => "[]",
        })
        .collect();
    parts.join(".")
}

fn app(name: &str, spec: &Value) -> Option<WebApp> {
    serde_json::from_value(json!({"apiVersion": "stead.dev/v1", "kind": "WebApp",
        "metadata": {"name": name}, "spec": spec}))
    .ok()
}

/// One worker on the cluster.
struct Worker<'a> {
    stage: &'a Stage,
}

impl Worker<'_> {
    fn apps(&self) -> Api<WebApp> {
        Api::default_namespaced(self.stage.client.clone())
    }

    fn objects(&self, kind: &stead::Kind) -> Api<DynamicObject> {
        Api::default_namespaced_with(self.stage.client.clone(), &kind.api_resource())
    }

    /// The spec as the server would keep it, if it and the children of it are valid.
    async fn accepted(&self, spec: &Value) -> Option<Value> {
        let trial = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let candidate = self.apps().create(&trial, &app("trial", spec)?).await.ok()?;
        if !stead_apis::webapp::validate::errors(&candidate.spec).is_empty() {
            return None;
        }
        let mut looked_at = candidate.clone();
        looked_at.status.get_or_insert_default().phase = Some(stead_apis::webapp::Phase::Created);
        let seen = stead_webapp::seen::Seen::default();
        let plan = stead_webapp::plan::webapp(&looked_at, &seen, jiff::Timestamp::UNIX_EPOCH);
        for child in plan.children {
            let mut object = child.object.clone();
            object["apiVersion"] = child.kind.api_version().into();
            object["kind"] = child.kind.kind.to_string().into();
            let how = PatchParams {
                dry_run: true,
                ..PatchParams::apply("trial").force()
            };
            let api = self.objects(&child.kind);
            api.patch(child.key.name(), &how, &Patch::Apply(object)).await.ok()?;
        }
        serde_json::to_value(&candidate.spec).ok()
    }

    /// Changes one property of an application and takes it back; each time its children must be those of another one
    /// that was installed so.
    async fn check(&self, number: usize, place: &str, base: &Value, spec: &Value) {
        let name = |letter: char| format!("app-{number:04}-{letter}");
        let (changed, mutated, original) = (name('c'), name('m'), name('o'));
        self.put(&changed, base).await;
        self.put(&mutated, spec).await;
        self.put(&original, base).await;
        self.same_children(&format!("{place}: the base"), &changed, &original)
            .await;
        self.put(&changed, spec).await;
        self.same_children(&format!("{place} mutated"), &changed, &mutated)
            .await;
        self.put(&changed, base).await;
        self.same_children(&format!("{place} taken back"), &changed, &original)
            .await;
        for name in [changed, mutated, original] {
            self.remove(&name).await;
        }
    }

    /// Removes an application with its children: nobody collects garbage here.
    async fn remove(&self, name: &str) {
        let how = DeleteParams::default();
        self.apps().delete(name, &how).await.expect("a deletion");
        let of_it = ListParams::default().labels(&format!("app.kubernetes.io/instance={name}"));
        for kind in stead_webapp::observe::owned_kinds() {
            let gone = self.objects(&kind).delete_collection(&how, &of_it).await;
            gone.expect("a deletion of children");
        }
    }

    async fn same_children(&self, what: &str, changed: &str, fresh: &str) {
        let compared = || async {
            let (changed, fresh) = (self.children(changed).await?, self.children(fresh).await?);
            match changed == fresh {
                true => Ok(()),
                false => Err(format!("\nchanged: {changed:#?}\nfresh: {fresh:#?}")),
            }
        };
        if let Err(error) = until(what, PATIENCE, compared).await {
            panic!("{error}");
        }
    }

    /// The application with this spec, whatever it was before.
    async fn put(&self, name: &str, spec: &Value) {
        let apps = self.apps();
        let wanted = app(name, spec).expect("a WebApp");
        until("the spec is taken", PATIENCE, || async {
            match apps.get_opt(name).await.map_err(|error| error.to_string())? {
                Some(mut there) => {
                    there.spec = wanted.spec.clone();
                    apps.replace(name, &PostParams::default(), &there).await
                }
                None => apps.create(&PostParams::default(), &wanted).await,
            }
            .map_err(|error| error.to_string())
        })
        .await
        .expect("an accepted spec");
    }

    /// Everything that the application has, without what only one installation knows; none before the operator is
    /// done with the spec as it is now.
    async fn children(&self, name: &str) -> Result<BTreeMap<String, Value>, String> {
        let app = self.apps().get(name).await.map_err(|error| error.to_string())?;
        let status = app.status.clone().unwrap_or_default();
        if status.observed_generation != app.metadata.generation {
            return Err(format!("not looked at yet: {status:?}"));
        }
        let hash = wanted_hash(&app);
        let mut children = BTreeMap::new();
        for kind in stead_webapp::observe::owned_kinds() {
            let chosen = ListParams::default().labels(&format!("app.kubernetes.io/instance={name}"));
            let found = self.objects(&kind).list(&chosen).await;
            for object in found.map_err(|error| error.to_string())?.items {
                let own = object.name_any();
                // Older revisions are history, which a fresh installation does not have.
                if kind.kind == "ControllerRevision" && !own.ends_with(&hash) {
                    continue;
                }
                let place = format!("{kind} {}", own.replace(name, "NAME"));
                children.insert(place, comparable(&object, name));
            }
        }
        let deployment = children.get("Deployment NAME").ok_or("there is no Deployment")?;
        let label = &deployment["metadata"]["labels"]["stead.dev/revision"];
        match *label == json!(hash) {
            true => Ok(children),
            false => Err(format!("the Deployment is of {label}, the spec of {hash}")),
        }
    }
}

/// Makes everything that a generated spec may refer to: without it the operator would wait.
async fn make_references(client: &Client) {
    let how = PostParams::default();
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    for name in STRINGS {
        if stead_machinery::names::dns1123_subdomain(name).is_empty() {
            let meta = json!({"metadata": {"name": name}});
            let secret = serde_json::from_value(meta.clone()).expect("a Secret");
            secrets.create(&how, &secret).await.expect("a Secret");
            let map = serde_json::from_value(meta).expect("a ConfigMap");
            maps.create(&how, &map).await.expect("a ConfigMap");
        }
    }
}

fn comparable(object: &DynamicObject, name: &str) -> Value {
    let mut value = serde_json::to_value(object).expect("JSON");
    let meta = &object.metadata;
    value["metadata"] = json!({"labels": meta.labels, "annotations": meta.annotations});
    for field in ["status", "revision"] {
        value.as_object_mut().expect("an object").remove(field);
    }
    if let Some(Value::Object(spec)) = value.get_mut("spec") {
        spec.retain(|field, _| !field.starts_with("clusterIP"));
    }
    // Names are all of one length, so nothing else than the name can differ because of it.
    serde_json::from_str(&value.to_string().replace(name, "NAME")).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn w12_every_property_mutated_in_turn_gives_the_children_of_a_fresh_install() {
    let mut stage = Stage::only_api().await;
    install(&stage.client, &foreign()).await;
    make_references(&stage.client).await;
    stage.start_operator();
    let (stage, schema) = (Arc::new(stage), Arc::new(schema()));
    let mut places = Vec::new();
    properties(&schema, &[], &mut places);
    assert!(places.len() > 300, "the schema has {} properties", places.len());
    let queue = Arc::new(Mutex::new(places.iter().cloned().enumerate().collect::<Vec<_>>()));
    let reached = Arc::new(Mutex::new(BTreeSet::new()));
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let (stage, schema, queue, reached) = (stage.clone(), schema.clone(), queue.clone(), reached.clone());
        workers.spawn(async move {
            let worker = Worker { stage: &stage };
            loop {
                let Some((number, place)) = queue.lock().await.pop() else {
                    return;
                };
                if let Some((base, spec)) = candidate(&worker, &schema, &place).await {
                    worker.check(number, &shown(&place), &base, &spec).await;
                    reached.lock().await.insert(place);
                }
            }
        });
    }
    workers.join_all().await;
    let reached = reached.lock().await;
    let missed: Vec<String> = places
        .iter()
        .filter(|place| !reached.contains(*place))
        .map(|place| shown(place))
        .collect();
    // A property that holds others is changed by what is in it.
    let untouched: Vec<String> = places
        .iter()
        .filter(|place| place.len() == 1 && !reached.iter().any(|changed| changed.starts_with(place)))
        .map(|place| shown(place))
        .collect();
    assert!(untouched.is_empty(), "no valid change was found of {untouched:?}");
    assert!(
        missed.len() * 4 < places.len(),
        "{} of {} properties could not be changed: {missed:?}",
        missed.len(),
        places.len()
    );
    println!(
        "{} of {} properties were mutated; not: {missed:?}",
        reached.len(),
        places.len()
    );
}

/// The first valid spec that differs from a base at this place, with the base.
async fn candidate(worker: &Worker<'_>, schema: &Value, place: &[Step]) -> Option<(Value, Value)> {
    let mut tried = HashSet::new();
    let mut bases = bases();
    bases.sort_by_key(|base| !surrounds(base, place));
    for base in bases {
        let base = worker.accepted(&base).await.expect("a valid base");
        for target in 0..STRINGS.len() {
            // What must stand beside the property is mostly satisfied by something simple, or by the same.
            for around in (0..SIMPLE).chain([target]) {
                let wish = mutated(schema, Some(&base), place, (target, around));
                if wish == base || !tried.insert(wish.to_string()) {
                    continue;
                }
                match worker.accepted(&wish).await {
                    Some(spec) if spec != base => return Some((base, spec)),
                    _ => {}
                }
            }
        }
    }
    None
}
