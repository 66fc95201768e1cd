//! The search for a valid change of every property: candidates from the schema, verdicts from the API server.

mod refusal;

use super::super::children::{self, Children};
use super::super::stage::Stage;
use super::schema::{self, Change, Learned, Place, Step};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use refusal::{Refusal, last_name, name_above, names};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;
use stead_apis::WebApp;
use stead_webapp::seen::Digests;

/// Usual values beside the changed one that are tried.
const BESIDE: usize = 4;
/// Specs that were found for neighbours and are changed in turn: those that have most of what is around.
const MOST_NEIGHBOURS: usize = 4;
/// Specs that are tried for one property, first while little is known and then once its neighbours are.
const MOST_TRIED: [usize; 2] = [40, 200];
/// Values that are tried while something else than the value is wrong.
const MOST_ELSEWHERE: usize = 4;

/// The name of what is only tried.
const TRIAL: &str = "trial";

/// Changes that children do not show, by the property that they are in: they are about when and how something is done.
const NOT_IN_CHILDREN: &[&str] = &["advice", "recovery", "revisionHistoryLimit", "sleep", "strategy"];

/// Specs to begin with: some properties make sense only beside others.
fn beginnings() -> Vec<Value> {
    let probe = || json!({"tcpSocket": {"port": 8080}});
    let field = || json!({"key": "metadata.name", "operator": "In", "values": ["data"]});
    let container = |name: &str| {
        json!({"name": name, "image": "busybox:1.36", "env": [{"name": "data", "value": "data"}],
            "livenessProbe": probe(), "readinessProbe": probe(), "startupProbe": probe(),
            "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": true}],
            "restartPolicy": "Always"})
    };
    vec![
        json!({"image": "nginx:1.25", "replicas": 2}),
        json!({"image": "nginx:1.25", "replicas": 2,
            "volumes": [{"name": "data", "emptyDir": {}}],
            "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": true}],
            "ports": [{"name": "http", "containerPort": 8080}],
            "tolerations": [{"key": "data", "operator": "Equal", "value": "data", "effect": "NoExecute"}],
            "strategy": {"type": "Canary", "canary": {"steps": [{"percent": 10}]}}}),
        json!({"image": "nginx:1.25", "replicas": 2,
            "probes": {"liveness": probe(), "readiness": probe(), "startup": probe()}}),
        json!({"image": "nginx:1.25", "replicas": 2, "volumes": [{"name": "data", "emptyDir": {}}],
            "initContainers": [container("init")]}),
        json!({"image": "nginx:1.25", "replicas": 2, "volumes": [{"name": "data", "emptyDir": {}}],
            "sidecars": [container("beside")]}),
        json!({"image": "nginx:1.25", "replicas": 2, "autoscaling": {"maxReplicas": 5, "metrics": [
            {"type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
            {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "app",
                "target": {"type": "Utilization", "averageUtilization": 50}}}]}}),
        // Volumes and rules that need several things at once, and the one field of a node that can be chosen by.
        json!({"image": "nginx:1.25", "replicas": 2,
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "data", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"data": "data"}}}],
            "volumes": [
                {"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}}}},
                {"name": "fibre", "fc": {"targetWWNs": ["data"], "lun": 2}}],
            "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field()]}]},
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": {"matchFields": [field()]}}]}}}),
        // A raw device.
        json!({"image": "nginx:1.25", "replicas": 2,
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            "initContainers": [{"name": "init", "image": "busybox:1.36"}],
            "sidecars": [{"name": "beside", "image": "busybox:1.36"}]}),
    ]
}

/// A spec, and what the cluster holds for it after a fresh install.
#[derive(Clone)]
struct Accepted {
    /// As the server keeps it.
    spec: Value,
    children: Children,
}

/// What came of a search.
#[derive(Default)]
pub struct Search {
    pub found: Vec<Found>,
    /// Places that were changed along with others.
    pub along: Vec<Place>,
    /// Places of which no valid change was found, and why the last one that was tried is not valid.
    pub missed: BTreeMap<Place, String>,
}

/// A valid change of a property.
pub struct Found {
    pub place: Place,
    /// What was changed.
    before: Value,
    pub spec: Value,
    /// What a fresh install of this spec gives.
    pub children: Children,
}

/// A cluster that judges.
pub struct Judge<'a> {
    stage: &'a Stage,
    /// Of what specs may refer to.
    digests: &'a Digests,
    /// What the server made of children: most specs have most of them.
    known: Mutex<HashMap<String, Value>>,
}

impl<'a> Judge<'a> {
    pub fn new(stage: &'a Stage, digests: &'a Digests) -> Self {
        Judge {
            stage,
            digests,
            known: Mutex::default(),
        }
    }

    /// A valid change of each of these places that can be changed. What was found for one is where the next is tried, so
    /// neighbours belong together.
    pub async fn changes(&self, schema: &Value, places: &[Place]) -> Search {
        let mut bases = self.beginnings().await;
        let beginnings = bases.len();
        let mut search = Search::default();
        for most in MOST_TRIED {
            // The second time it is enough if a place was changed along with a neighbour.
            let again = !search.missed.is_empty();
            let missed = std::mem::take(&mut search.missed);
            let open = places.iter().filter(|place| !again || missed.contains_key(*place));
            for place in open {
                if again && search.found.iter().any(|found| found.changes_too(place)) {
                    search.along.push(place.clone());
                    continue;
                }
                let bases_of_both = bases.split_at(beginnings);
                if schema::has_one_value(schema, place) {
                    match self.coming_and_going(schema, place, bases_of_both, most).await {
                        Ok(found) => search.found.extend(found),
                        Err(refusal) => {
                            search.missed.insert(place.clone(), format!("{:?}", refusal.causes));
                        }
                    }
                    continue;
                }
                match self.change(schema, place, bases_of_both, most).await {
                    Ok((before, accepted)) => {
                        search.found.push(Found {
                            place: place.clone(),
                            before,
                            spec: accepted.spec.clone(),
                            children: accepted.children.clone(),
                        });
                        bases.push(accepted);
                    }
                    Err(refusal) => {
                        search.missed.insert(place.clone(), format!("{:?}", refusal.causes));
                    }
                }
            }
            if search.missed.is_empty() {
                break;
            }
        }
        search
    }

    async fn beginnings(&self) -> Vec<Accepted> {
        let mut bases = Vec::new();
        for beginning in beginnings() {
            let base = self.accepted(&beginning).await;
            bases.push(base.unwrap_or_else(|why| panic!("a beginning is not valid: {why:?}")));
        }
        bases
    }

    /// Why the values of a property that were tried are refused, in words that name it; or a spec that has one of them.
    /// `part` is where the part begins that should not be.
    pub async fn refusal(&self, schema: &Value, place: &[Step], part: usize) -> Result<String, String> {
        let bases = self.beginnings().await;
        let mut attempts = Attempts::new(self, schema, place, MOST_TRIED[0]);
        // Nothing is tried twice, so this ends.
        while let Some((_, accepted)) = attempts.first(bases.iter().collect()).await {
            let value = schema::value_at(&accepted.spec, place);
            if value.is_some_and(|value| !schema::is_nothing(value)) {
                return Err(format!("it is taken: {}", accepted.spec));
            }
        }
        let of_it = attempts.refused.iter().find(|(field, _)| names(field, place, part));
        let told = of_it.map(|(field, why)| format!("{field}: {why}"));
        told.ok_or_else(|| format!("it is never named: {:#?}", attempts.refused))
    }

    /// A property that can have one value only comes and goes, with as little of what holds it as can be missing: a spec
    /// without it, the same one with it, and again without it.
    async fn coming_and_going(
        &self,
        schema: &Value,
        place: &[Step],
        (beginnings, neighbours): (&[Accepted], &[Accepted]),
        most: usize,
    ) -> Result<[Found; 3], Refusal> {
        let mut bases: Vec<&Accepted> = neighbours.iter().rev().chain(beginnings).collect();
        let has_it = |base: &&Accepted| schema::present(&base.spec, place) == place.len();
        bases.retain(has_it);
        let new;
        if bases.is_empty() {
            new = self.change(schema, place, (beginnings, neighbours), most).await?.1;
            bases.push(&new);
        }
        let mut last = Refusal::default();
        for with in bases {
            for end in (1..=place.len()).rev() {
                if place[end - 1] == Step::Item {
                    continue;
                }
                let less = schema::without(&with.spec, &place[..end]);
                match self.accepted(&less).await {
                    // A default may bring it back.
                    Ok(without) if !has_it(&&without) && takes_effect(place, &without, with) => {
                        let found = |now: &Accepted, before: &Accepted| Found {
                            place: place.to_vec(),
                            before: before.spec.clone(),
                            spec: now.spec.clone(),
                            children: now.children.clone(),
                        };
                        return Ok([found(&without, with), found(with, &without), found(&without, with)]);
                    }
                    Ok(_) => {}
                    Err(refusal) => last = refusal,
                }
            }
        }
        Err(last)
    }

    /// The first valid spec that differs from a base at this place and asks something else of the cluster; and the base.
    async fn change(
        &self,
        schema: &Value,
        place: &[Step],
        (beginnings, neighbours): (&[Accepted], &[Accepted]),
        most: usize,
    ) -> Result<(Value, Accepted), Refusal> {
        let there = |base: &&Accepted| Reverse(schema::present(&base.spec, place));
        let mut bases: Vec<&Accepted> = neighbours.iter().collect();
        bases.sort_by_key(there);
        bases.truncate(MOST_NEIGHBOURS);
        bases.extend(beginnings);
        let mut attempts = Attempts::new(self, schema, place, most);
        let found = attempts.first(bases).await;
        found.ok_or(attempts.last)
    }

    /// The spec as the server would keep it with the children of it, if all of that is valid.
    async fn accepted(&self, spec: &Value) -> Result<Accepted, Refusal> {
        let trial = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let app = app(TRIAL, spec).ok_or_else(Refusal::default)?;
        let apps: Api<WebApp> = Api::default_namespaced(self.stage.client.clone());
        let mut app = apps.create(&trial, &app).await?;
        let mistakes = stead_apis::webapp::validate::errors(&app.spec);
        if !mistakes.is_empty() {
            let causes = mistakes.iter().map(|mistake| (mistake.field.clone(), mistake.body()));
            return Err(Refusal {
                causes: causes.collect(),
            });
        }
        app.status.get_or_insert_default().phase = Some(stead_apis::webapp::Phase::Created);
        let seen = stead_webapp::seen::Seen {
            optional: stead_webapp::seen::OptionalKinds {
                gateway: true,
                monitoring: true,
            },
            digests: self.digests.clone(),
            ..Default::default()
        };
        let plan = stead_webapp::plan::webapp(&app, &seen, jiff::Timestamp::now());
        // While something is missing that the pods would read, there is nothing to compare.
        if !plan.children.iter().any(|child| child.kind.kind == "Deployment") {
            return Err(Refusal::default());
        }
        let mut children = Children::new();
        for child in plan.children {
            let mut object = child.object.clone();
            object["apiVersion"] = child.kind.api_version().into();
            object["kind"] = child.kind.kind.to_string().into();
            let text = object.to_string();
            let place = format!("{} {}", child.kind, child.key.name().replace(TRIAL, "NAME"));
            let known = self.known.lock().expect("no panic").get(&text).cloned();
            if let Some(made) = known {
                children.insert(place, made);
                continue;
            }
            let how = PatchParams {
                dry_run: true,
                ..PatchParams::apply("stead-operator").force()
            };
            let kind = child.kind.api_resource();
            let api: Api<DynamicObject> = Api::default_namespaced_with(self.stage.client.clone(), &kind);
            let made = api.patch(child.key.name(), &how, &Patch::Apply(object)).await?;
            let made = children::comparable(&made, TRIAL);
            self.known.lock().expect("no panic").insert(text, made.clone());
            children.insert(place, made);
        }
        Ok(Accepted {
            spec: serde_json::to_value(&app.spec).expect("JSON"),
            children,
        })
    }
}

/// An application with this spec.
pub fn app(name: &str, spec: &Value) -> Option<WebApp> {
    serde_json::from_value(json!({"apiVersion": "stead.dev/v1", "kind": "WebApp",
        "metadata": {"name": name}, "spec": spec}))
    .ok()
}

/// Whether the change was kept, and is more than words.
fn takes_effect(place: &[Step], base: &Accepted, accepted: &Accepted) -> bool {
    let shown = match &place[0] {
        Step::Field(name) => !NOT_IN_CHILDREN.contains(&name.as_str()),
        Step::Item => true,
    };
    accepted.spec != base.spec
        && schema::present(&accepted.spec, place) == place.len()
        && (!shown || accepted.children != base.children)
}

/// The search at one place.
struct Attempts<'a> {
    judge: &'a Judge<'a>,
    schema: &'a Value,
    place: &'a [Step],
    learned: Learned,
    tried: HashSet<String>,
    /// How many specs are tried at most.
    most: usize,
    /// Why the last of them was not valid.
    last: Refusal,
    /// Fields that were refused, each with the last reason.
    refused: BTreeMap<String, String>,
}

impl<'a> Attempts<'a> {
    fn new(judge: &'a Judge<'a>, schema: &'a Value, place: &'a [Step], most: usize) -> Self {
        Attempts {
            judge,
            schema,
            place,
            learned: Learned::new(),
            tried: HashSet::new(),
            most,
            last: Refusal::default(),
            refused: BTreeMap::new(),
        }
    }

    /// The first valid change of one of these specs, those first that have most of what is around; and what it changed.
    async fn first(&mut self, mut bases: Vec<&Accepted>) -> Option<(Value, Accepted)> {
        bases.sort_by_key(|base| Reverse(schema::present(&base.spec, self.place)));
        for beside in 0..BESIDE {
            for base in &bases {
                let there = schema::present(&base.spec, self.place).min(self.place.len() - 1);
                // First all that is there stays; then less and less of it, for what excludes each other.
                for kept in (0..=there).rev() {
                    if let Some(accepted) = self.with(base, kept, beside).await {
                        return Some((base.spec.clone(), accepted));
                    }
                }
            }
        }
        None
    }

    /// Tries every value that the property may have, with the same around it.
    async fn with(&mut self, base: &Accepted, kept: usize, beside: usize) -> Option<Accepted> {
        let (own, above) = (last_name(self.place), name_above(self.place));
        let mut elsewhere = 0;
        let mut number = 0;
        while self.tried.len() < self.most && elsewhere < MOST_ELSEWHERE {
            let words = self.learned.get(own).or_else(|| self.learned.get(above));
            let words = words.map_or(&[][..], Vec::as_slice);
            let values = schema::values(schema::at(self.schema, self.place), words);
            let change = Change {
                value: values.get(number)?,
                kept,
                beside,
                learned: &self.learned,
            };
            number += 1;
            let wish = change.of(self.schema, &base.spec, self.place);
            if wish == base.spec || !self.tried.insert(wish.to_string()) {
                continue;
            }
            match self.judge.accepted(&wish).await {
                Ok(accepted) if takes_effect(self.place, base, &accepted) => return Some(accepted),
                Ok(_) => {}
                Err(refusal) => {
                    // Where something else is wrong, another value helps only now and then.
                    elsewhere += usize::from(!refusal.is_about(own) && !refusal.is_about(above));
                    for (name, words) in refusal.words() {
                        if self.learned.get(&name) != Some(&words) {
                            self.learned.insert(name, words);
                            number = 0;
                        }
                    }
                    self.refused.extend(refusal.causes.iter().cloned());
                    self.last = refusal;
                }
            }
        }
        None
    }
}

impl Found {
    /// Whether a property was changed along with the one that is meant: a word that tells which of several members is
    /// there cannot be changed without them.
    fn changes_too(&self, place: &[Step]) -> bool {
        let now = schema::value_at(&self.spec, place);
        now.is_some() && now != schema::value_at(&self.before, place)
    }
}
