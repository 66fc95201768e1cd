//! The operator dies around every single write of an application's life, and another one goes on.
//!
//! The framework has this story for its own sake; here it is told of the WebApp operator, whose plan has to find out by
//! itself how far its predecessor came.
//!
//! A write at which the operator dies is known by what it does, not by how many came before it: a conflict that is
//! repeated, or a look that finds nothing to say, makes the writes of one run more or fewer than those of another. What
//! has to be written does not differ. Each half of the story begins only when the status says that the one before it is
//! over, so no status is left out either; and so every write that an undisturbed run made comes in every other run, and
//! one that does not come fails the test.

use super::children::{self, Children};
use super::stage::{Stage, foreign, install};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stead_apis::webapp::Phase;
use stead_test::faults::{Fault, Sent};
use stead_test::wait::until;

const PATIENCE: Duration = Duration::from_secs(60);
/// What both halves of the story write at least: creates, changes, deletions, statuses.
const FEWEST_WRITES: usize = 15;

/// What became of the write around which the operator died.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// It never reached the server.
    Lost,
    /// The server did it, and the answer never came.
    Unanswered,
    /// It was answered, and then the operator died.
    Answered,
}

/// The operator's own work: not what it tells.
fn work(sent: &Sent) -> bool {
    sent.is_write() && !sent.is_about("events")
}

/// A write for an application: what is done to which kind, and of a status what it says of which generation.
fn deed(sent: &Sent, name: &str) -> Option<String> {
    let mut names = sent.path.split('/').skip_while(|part| *part != "default").skip(1);
    let (kind, object) = (names.next()?, names.next()?);
    if !work(sent) || !object.starts_with(name) {
        return None;
    }
    let body: Value = serde_json::from_slice(&sent.body).unwrap_or_default();
    let status = &body["status"];
    Some(match names.next() {
        Some(part) => format!(
            "{} {kind}/{part} {} {}",
            sent.method, status["phase"], status["conditions"][0]["observedGeneration"]
        ),
        None => format!("{} {kind}", sent.method),
    })
}

/// A write at which the operator dies.
#[derive(Clone, Debug)]
struct Point {
    deed: String,
    /// How many of the same come before it.
    before: usize,
}

/// Every write that the server took, in order.
fn points(stage: &Stage, name: &str) -> Vec<Point> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let writes = stage.faults.effective_writes();
    let deeds = writes.iter().filter_map(|sent| deed(sent, name));
    deeds
        .map(|deed| {
            let times = times.entry(deed.clone()).or_default();
            *times += 1;
            let before = *times - 1;
            Point { deed, before }
        })
        .collect()
}

fn first() -> Value {
    json!({"image": "nginx:1.25", "replicas": 2, "files": [{"path": "/etc/a", "content": "one"}],
        "ingress": {"host": "shop.example.com"}, "network": {}})
}

/// Something is changed, something comes, something goes.
fn second() -> Value {
    json!({"image": "nginx:1.26", "replicas": 1, "files": [{"path": "/etc/a", "content": "two"}], "ingress": null,
        "autoscaling": {"minReplicas": 1, "maxReplicas": 3}})
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_around_every_write_of_an_application_another_operator_comes_to_the_same_end() {
    let mut stage = Stage::only_api().await;
    install(&stage.client, &foreign()).await;
    stage.start_operator();
    let name = "app-000-undisturbd";
    stage.create_named(name, first()).await;
    let begun = settled(&stage, name, &["Ingress", "NetworkPolicy", "ConfigMap"]).await;
    change(&stage, name).await;
    let ended = settled(&stage, name, &["HorizontalPodAutoscaler", "NetworkPolicy", "ConfigMap"]).await;
    stage.quiet().await;
    stage.kill_operator().await;
    let points = points(&stage, name);
    assert!(points.len() >= FEWEST_WRITES, "{points:#?}");
    for (number, point) in points.iter().enumerate() {
        for fate in [Fate::Lost, Fate::Unanswered, Fate::Answered] {
            let name = format!("app-{number:03}-{:x<10}", format!("{fate:?}").to_lowercase());
            killed_around(&mut stage, &name, point, fate, [&begun, &ended]).await;
        }
    }
}

/// Kills the operator around one write, and lets another one go on.
async fn killed_around(stage: &mut Stage, name: &str, point: &Point, fate: Fate, [begun, ended]: [&Children; 2]) {
    let what = format!("{point:?} was {fate:?}");
    stage.faults.heal();
    stage.faults.forget();
    let death = Arc::new(AtomicBool::new(false));
    let is_it = {
        let (name, wanted) = (name.to_owned(), point.deed.clone());
        move |sent: &Sent| deed(sent, &name).as_ref() == Some(&wanted)
    };
    let fault = match fate {
        Fate::Lost => Fault::LoseRequest,
        Fate::Unanswered => Fault::LoseAnswer,
        Fate::Answered => Fault::Delay(Duration::ZERO),
    };
    stage
        .faults
        .next(point.before, Fault::Delay(Duration::ZERO), is_it.clone());
    let (strikes, dead) = (death.clone(), death.clone());
    stage.faults.next(1, fault, move |sent| {
        let struck = is_it(sent);
        strikes.fetch_or(struck, Ordering::Relaxed);
        struck
    });
    // The operator is dead from here on: whatever it still sends goes nowhere.
    stage.faults.next(usize::MAX, Fault::Silence, move |sent| {
        work(sent) && dead.load(Ordering::Relaxed)
    });
    stage.start_operator();
    stage.create_named(name, first()).await;
    until(&format!("the operator dies: {what}"), PATIENCE, || async {
        if death.load(Ordering::Relaxed) && (!matches!(fate, Fate::Answered) || answered(stage, name, point)) {
            return Ok(());
        }
        // Where it lives longer than the first half of the story, the second half begins.
        if over(stage, name).await.as_ref() == Ok(begun) {
            change(stage, name).await;
        }
        Err("it lives")
    })
    .await
    .expect("a write that every run of the story has");
    stage.kill_operator().await;
    stage.faults.heal();
    stage.start_operator();
    until(&what, PATIENCE, || async {
        let found = over(stage, name).await?;
        let done = found == *begun || found == *ended;
        done.then_some(()).ok_or_else(|| format!("{found:#?}"))
    })
    .await
    .expect("one half of the story");
    change(stage, name).await;
    until(&what, PATIENCE, || async {
        let found = over(stage, name).await?;
        (found == *ended).then_some(()).ok_or_else(|| format!("{found:#?}"))
    })
    .await
    .expect("the same end");
    let how = DeleteParams::default();
    stage.apps().delete(name, &how).await.expect("a deletion");
    stage.kill_operator().await;
}

/// Whether the write around which the operator dies was answered.
fn answered(stage: &Stage, name: &str, point: &Point) -> bool {
    let sent = stage.faults.sent();
    let mut same = sent
        .iter()
        .filter(|sent| deed(sent, name).as_ref() == Some(&point.deed));
    same.nth(point.before).is_some_and(|struck| struck.code.is_some())
}

/// The second half of the story. Doing it twice changes nothing.
async fn change(stage: &Stage, name: &str) {
    let patch = Patch::Merge(json!({"spec": second()}));
    let how = PatchParams::default();
    stage
        .apps()
        .patch(name, &how, &patch)
        .await
        .expect("an accepted change");
}

/// The children of an application, once the operator has said all that it has to say of them. Nobody makes pods here: it
/// ends with waiting for them.
async fn over(stage: &Stage, name: &str) -> Result<Children, String> {
    let app = stage.apps().get(name).await.map_err(|error| error.to_string())?;
    let status = app.status.clone().unwrap_or_default();
    let current = status.observed_generation == app.metadata.generation;
    match current && status.phase == Some(Phase::WaitingForPods) {
        true => children::of(&stage.client, name).await,
        false => Err(format!("not over: {status:?}")),
    }
}

/// Waits until the application has children of these kinds, and gives all of them.
async fn settled(stage: &Stage, name: &str, kinds: &[&str]) -> Children {
    until("it is made", PATIENCE, || async {
        let found = over(stage, name).await?;
        let there = |kind: &&&str| found.keys().filter(|place| place.starts_with(**kind)).count() == 1;
        let all = kinds.iter().filter(there).count() == kinds.len();
        let gone = kinds.contains(&"Ingress") || !found.keys().any(|place| place.starts_with("Ingress"));
        (all && gone)
            .then(|| found.clone())
            .ok_or_else(|| format!("{found:#?}"))
    })
    .await
    .expect("all of it")
}
