//! The operator dies around every single write of an application's life, and another one goes on.
//!
//! The framework has this story for its own sake; here it is told of the WebApp operator, whose plan has to find out by
//! itself how far its predecessor came.

use super::children::{self, Children};
use super::stage::{Stage, foreign, install};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use stead_test::faults::{Fault, Sent};
use stead_test::wait::until;

const PATIENCE: Duration = Duration::from_secs(60);
/// An operator that wrote nothing for so long has nothing more to write.
const SILENCE: Duration = Duration::from_secs(2);

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
    let writes = stage.faults.sent().iter().filter(|sent| work(sent)).count();
    assert!(writes > 12, "creates, changes, deletions, statuses: {writes}");
    for survived in 0..writes {
        for fate in [Fate::Lost, Fate::Unanswered, Fate::Answered] {
            killed_around(&mut stage, survived, fate, [&begun, &ended]).await;
        }
    }
}

/// Kills the operator around one write, and lets another one go on.
async fn killed_around(stage: &mut Stage, survived: usize, fate: Fate, [begun, ended]: [&Children; 2]) {
    let name = format!("app-{survived:03}-{:x<10}", format!("{fate:?}").to_lowercase());
    let what = format!("write {survived} was {fate:?}");
    stage.faults.heal();
    stage.faults.forget();
    stage.faults.next(survived, Fault::Delay(Duration::ZERO), work);
    match fate {
        Fate::Lost => stage.faults.next(1, Fault::LoseRequest, work),
        Fate::Unanswered => stage.faults.next(1, Fault::LoseAnswer, work),
        Fate::Answered => stage.faults.next(1, Fault::Delay(Duration::ZERO), work),
    }
    // The operator is dead from here on: whatever it still sends goes nowhere.
    stage.faults.next(usize::MAX, Fault::Silence, work);
    stage.start_operator();
    stage.create_named(&name, first()).await;
    struck(stage, &name, &what, survived, fate, [begun, ended]).await;
    stage.kill_operator().await;
    stage.faults.heal();
    stage.start_operator();
    until(&what, PATIENCE, || async {
        let found = children::of(&stage.client, &name).await?;
        let done = found == *begun || found == *ended;
        done.then_some(()).ok_or_else(|| format!("{found:#?}"))
    })
    .await
    .expect("one half of the story");
    change(stage, &name).await;
    until(&what, PATIENCE, || async {
        let found = children::of(&stage.client, &name).await?;
        (found == *ended).then_some(()).ok_or_else(|| format!("{found:#?}"))
    })
    .await
    .expect("the same end");
    let how = DeleteParams::default();
    stage.apps().delete(&name, &how).await.expect("a deletion");
    stage.kill_operator().await;
}

/// Waits until the write around which the operator dies is sent. Two looks that become one save a write, so the story may
/// have fewer of them this time, and come to its end before.
async fn struck(stage: &Stage, name: &str, what: &str, survived: usize, fate: Fate, [begun, ended]: [&Children; 2]) {
    let (mut writes, mut since) = (0, Instant::now());
    until(what, PATIENCE, || {
        let sent = stage.faults.sent();
        let sent: Vec<&Sent> = sent.iter().filter(|sent| work(sent)).collect();
        if sent.len() != writes {
            (writes, since) = (sent.len(), Instant::now());
        }
        let silent = since.elapsed() > SILENCE;
        let struck = match (sent.get(survived), fate) {
            (Some(_), Fate::Lost | Fate::Unanswered) => true,
            (Some(struck), Fate::Answered) => struck.code.is_some(),
            (None, _) => false,
        };
        async move {
            if struck {
                return Ok(());
            }
            let found = children::of(&stage.client, name).await;
            // Where it lives longer than the first half of the story, the second half begins.
            if found.as_ref() == Ok(begun) {
                change(stage, name).await;
            }
            let over = silent && found.as_ref() == Ok(ended);
            over.then_some(()).ok_or("it lives")
        }
    })
    .await
    .expect("its death, or the end of the story");
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

/// Waits until the application has children of these kinds, and gives all of them.
async fn settled(stage: &Stage, name: &str, kinds: &[&str]) -> Children {
    until("it is made", PATIENCE, || async {
        let found = children::of(&stage.client, name).await?;
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
