//! W12: every property of the spec, mutated in turn.
//!
//! The properties and their values come from the definition's own schema, to its ends; the API server judges which values
//! are valid. No controller runs here: what counts is what the operator makes of a spec, and the children of an
//! application that was changed must be those of one that was installed so.

mod left_out;
mod schema;
mod search;

use super::children::{self, Children};
use super::stage::{Stage, foreign, install};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use schema::{Place, shown};
use search::{Found, Judge, app};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stead_apis::WebApp;
use stead_test::wait::until;
use stead_webapp::references::Digested;
use stead_webapp::seen::Digests;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(60);
const WORKERS: usize = 4;
/// Neighbours in the schema that are changed one after the other, in one application.
const NEIGHBOURS: usize = 40;
/// Of so many changes one is compared with an installation that is made for it.
const EVERY: usize = 20;
/// What a generated spec may refer to.
const REFERENCES: &[&str] = &["data", "data.example.com"];

/// The places in groups of neighbours. What is deep inside of one thing stays together: its parts need each other.
fn neighbours(places: &[Place]) -> Vec<Vec<Place>> {
    let mut groups: Vec<Vec<Place>> = Vec::new();
    for place in places {
        match groups.last_mut() {
            Some(group) if group.len() < NEIGHBOURS || group.last().is_some_and(|last| shared(last, place) > 2) => {
                group.push(place.clone());
            }
            _ => groups.push(vec![place.clone()]),
        }
    }
    groups
}

/// How many steps two ways have in common.
fn shared(one: &[schema::Step], other: &[schema::Step]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// Makes what generated specs refer to, without which the operator would wait; and gives its digests as the operator
/// sees them. That of a Secret covers what the server gave it.
async fn make_references(client: &Client) -> Digests {
    let how = PostParams::default();
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let seen_secrets: Api<Digested<Secret>> = Api::default_namespaced(client.clone());
    let seen_maps: Api<Digested<ConfigMap>> = Api::default_namespaced(client.clone());
    let mut digests = Digests::default();
    for name in REFERENCES {
        let meta = json!({"metadata": {"name": name}});
        let secret = serde_json::from_value(meta.clone()).expect("a Secret");
        secrets.create(&how, &secret).await.expect("a Secret");
        let seen = seen_secrets.get(name).await.expect("the Secret");
        digests.secrets.insert(name.to_string(), seen.digest);
        let map = serde_json::from_value(meta).expect("a ConfigMap");
        maps.create(&how, &map).await.expect("a ConfigMap");
        let seen = seen_maps.get(name).await.expect("the ConfigMap");
        digests.config_maps.insert(name.to_string(), seen.digest);
    }
    digests
}

#[tokio::test(flavor = "multi_thread")]
async fn w12_every_property_mutated_in_turn_gives_the_children_of_a_fresh_install() {
    let definitions = stead_apis::definitions::all();
    let Some(mut stage) = Stage::either_api(&definitions).await else {
        return;
    };
    install(&stage.client, &foreign()).await;
    let digests = Arc::new(make_references(&stage.client).await);
    stage.start_operator();
    let (stage, schema) = (Arc::new(stage), Arc::new(schema::of_the_spec(&definitions[0])));
    let all = schema::properties(&schema);
    let leaves: Vec<Place> = schema::leaves(&all).cloned().collect();
    let groups = neighbours(&leaves).into_iter().enumerate();
    let queue = Arc::new(Mutex::new(groups.collect::<VecDeque<_>>()));
    let outcome = Arc::new(Mutex::new(Outcome::default()));
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let (stage, schema, digests) = (stage.clone(), schema.clone(), digests.clone());
        let (queue, outcome) = (queue.clone(), outcome.clone());
        workers.spawn(async move {
            let judge = Judge::new(&stage, &digests);
            loop {
                let Some((group, places)) = queue.lock().await.pop_front() else {
                    return;
                };
                let searching = Instant::now();
                let search = judge.changes(&schema, &places).await;
                let living = Instant::now();
                Chain::new(&stage, group).live_through(&search.found).await;
                println!(
                    "{} to {}: {} of {} changed; searched for {:?}, lived through in {:?}",
                    shown(&places[0]),
                    shown(&places[places.len() - 1]),
                    search.found.len(),
                    places.len(),
                    living - searching,
                    living.elapsed()
                );
                for (place, why) in &search.missed {
                    println!("{} is refused: {why}", shown(place));
                }
                let mut outcome = outcome.lock().await;
                outcome
                    .reached
                    .extend(search.found.into_iter().map(|found| found.place));
                outcome.reached.extend(search.along);
                outcome.missed.extend(search.missed);
            }
        });
    }
    workers.join_all().await;
    let outcome = outcome.lock().await;
    // What holds others was changed with them.
    let changed = |place: &&Place| outcome.reached.iter().any(|leaf| leaf.starts_with(place));
    println!(
        "{} of {} properties were mutated",
        all.iter().filter(changed).count(),
        all.len()
    );
    let missed: Vec<String> = outcome
        .missed
        .iter()
        .map(|(place, why)| format!("{}: {why}", shown(place)))
        .collect();
    assert!(missed.is_empty(), "no valid change was found of {missed:#?}");
    let forgotten: Vec<String> = all
        .iter()
        .filter(|place| !changed(place))
        .map(|place| shown(place))
        .collect();
    assert!(forgotten.is_empty(), "places were not even tried: {forgotten:#?}");
}

/// What came of all searches.
#[derive(Default)]
struct Outcome {
    reached: BTreeSet<Place>,
    missed: BTreeMap<Place, String>,
}

/// One application that is changed again and again, and beside it each time another one that is installed anew.
struct Chain<'a> {
    stage: &'a Stage,
    group: usize,
}

impl<'a> Chain<'a> {
    fn new(stage: &'a Stage, group: usize) -> Self {
        Chain { stage, group }
    }

    /// Names are all of one length, so nothing else than the name can differ because of it.
    fn name(&self, number: usize) -> String {
        format!("app-{:03}-{number:03}", self.group)
    }

    /// Gives the application one spec after the other. With each the change before it is taken back, so every property
    /// is both set and removed, and each time the children must be those of a fresh install.
    async fn live_through(&self, changes: &[Found]) {
        let changed = self.name(0);
        let mut before = ("nothing".to_string(), Value::Null);
        for (number, found) in changes.iter().enumerate() {
            self.put(&changed, &found.spec).await;
            let what = format!(
                "{} after {}\nbefore: {}\nafter: {}\n",
                shown(&found.place),
                before.0,
                before.1,
                found.spec
            );
            let sleeps = found.spec.get("sleep").is_some();
            // What the server made of the children when they were tried is what an install gives; now and then one is
            // made to see that this is so, and always where it depends on the time.
            if number % EVERY == 0 || sleeps {
                let fresh = self.name(number + 1);
                self.put(&fresh, &found.spec).await;
                self.same_children(&what, &changed, Expected::OfFresh(&fresh)).await;
                self.remove(&fresh).await;
            }
            if !sleeps {
                self.same_children(&what, &changed, Expected::Known(&found.children))
                    .await;
            }
            before = (shown(&found.place), found.spec.clone());
        }
        if !changes.is_empty() {
            self.remove(&changed).await;
        }
    }

    fn apps(&self) -> Api<WebApp> {
        Api::default_namespaced(self.stage.client.clone())
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

    /// Removes an application with its children: nobody collects garbage here.
    async fn remove(&self, name: &str) {
        let how = DeleteParams::default();
        self.apps().delete(name, &how).await.expect("a deletion");
        let of_it = ListParams::default().labels(&format!("app.kubernetes.io/instance={name}"));
        for kind in stead_webapp::observe::owned_kinds() {
            let gone = children::objects(&self.stage.client, &kind)
                .delete_collection(&how, &of_it)
                .await;
            gone.expect("a deletion of children");
        }
    }

    async fn same_children(&self, what: &str, changed: &str, expected: Expected<'_>) {
        let compared = || async {
            let changed = children::of(&self.stage.client, changed).await?;
            let fresh = match expected {
                Expected::OfFresh(name) => children::of(&self.stage.client, name).await?,
                Expected::Known(children) => children.clone(),
            };
            match changed == fresh {
                true => Ok(()),
                false => Err(format!("\nchanged: {changed:#?}\nfresh: {fresh:#?}")),
            }
        };
        if let Err(error) = until(what, PATIENCE, compared).await {
            panic!("{error}");
        }
    }
}

/// What the children of a changed application are compared with.
#[derive(Clone, Copy)]
enum Expected<'a> {
    /// Those of another one that was installed so.
    OfFresh(&'a str),
    /// Those that an install gives.
    Known(&'a Children),
}
