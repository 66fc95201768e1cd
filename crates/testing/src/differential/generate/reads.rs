//! Gets, lists and watches.

use super::super::sequence::Step;
use super::{Story, Subject};
use rand::Rng;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

const LABEL_SELECTORS: &[&str] = &[
    "app%3Dweb",
    "app!%3Dweb",
    "app",
    "!app",
    "app+in+(web,db)",
    "app+notin+(web)",
    "tier+in+(x),app",
    "app%3D%3Dweb,tier%3Dx",
    "app>1",
    "app+in",
    "app+in+(",
    "%3D",
    "a%20b",
    "UPPER/x%3D1",
    ",app",
];

const VERSIONS: &[&str] = &[
    "",
    "resourceVersion=0",
    "resourceVersion={rv:0}",
    "resourceVersion={rv:0}&resourceVersionMatch=NotOlderThan",
    "resourceVersion=0&resourceVersionMatch=NotOlderThan",
    "resourceVersion=0&resourceVersionMatch=Exact",
    "resourceVersionMatch=Exact",
    "resourceVersion=x",
    "resourceVersion={rv:0}&resourceVersionMatch=Newer",
    "resourceVersion=-1",
];

/// The query that keeps other sequences' objects of a cluster-scoped kind out.
fn own(subject: &Subject) -> Vec<String> {
    match subject.namespaced {
        true => Vec::new(),
        false => vec!["labelSelector=sequence%3D{ns}".to_string()],
    }
}

fn address(path: &str, query: &[String]) -> String {
    match query.is_empty() {
        true => path.to_string(),
        false => format!("{path}?{}", query.join("&")),
    }
}

pub fn read(story: &mut Story, subject: &Subject) {
    match story.rng.random_range(0..10) {
        0..2 => get(story, subject),
        2..7 => list(story, subject),
        7 => pages(story, subject),
        _ => watch(story, subject),
    }
}

fn get(story: &mut Story, subject: &Subject) {
    let name = story.name(subject);
    let mut step = Step::new("GET", format!("{}/{name}", subject.collection));
    if story.one_in(3) {
        step.accept = story.word(&[TABLE, PARTIAL, "text/html", "application/yaml", "*/*"]);
    }
    if story.one_in(8) {
        let query = story.word(&["resourceVersion=0", "resourceVersion=x", "pretty=false", "unknown=1"]);
        step.path = format!("{}?{query}", step.path);
    }
    if step.accept.is_empty() {
        story.write(&name, step);
    } else {
        story.step(step);
    }
}

fn list(story: &mut Story, subject: &Subject) {
    let mut query = own(subject);
    if story.one_in(2) {
        let selector = story.word(LABEL_SELECTORS);
        match query.first_mut() {
            Some(own) => *own = format!("{own},{selector}"),
            None => query.push(format!("labelSelector={selector}")),
        }
    }
    if story.one_in(4) {
        let mut selectors: Vec<String> = [
            "metadata.name%3Da",
            "metadata.name!%3Da",
            "metadata.namespace%3D{ns}",
            "spec.unknown%3D1",
            "metadata.name",
            "a%3Db%3Dc",
        ]
        .map(str::to_string)
        .to_vec();
        selectors.extend(subject.field_selectors.iter().cloned());
        let selector = story.pick(&selectors).clone();
        query.push(format!("fieldSelector={selector}"));
    }
    if story.one_in(3) {
        let version = story
            .word(VERSIONS)
            .replace("{rv:0}", &format!("{{rv:{}}}", subject.since));
        if !version.is_empty() {
            query.push(version);
        }
    }
    if story.one_in(12) {
        let odd = story.word(&[
            "limit=x",
            "limit=-1",
            "limit=0",
            "continue=abc",
            "timeoutSeconds=x",
            "allowWatchBookmarks=maybe",
            "watch=false",
            "sendInitialEvents=true",
        ]);
        query.push(odd);
    }
    let mut step = Step::new("GET", address(&subject.collection, &query));
    if story.one_in(4) {
        step.accept = story.word(&[TABLE, PARTIAL_LIST]);
    }
    story.step(step);
}

/// Two pages of a list. With a selector the servers may not know how many remain, so none is used, and what
/// sequences share is read whole: whether a page is the last depends on the others.
fn pages(story: &mut Story, subject: &Subject) {
    if !subject.namespaced {
        story.step(Step::new("GET", address(&subject.collection, &own(subject))));
        return;
    }
    let mut query = vec!["limit=1".to_string()];
    let first = story.step(Step::new("GET", address(&subject.collection, &query)));
    query.push(format!("continue={{continue:{first}}}"));
    story.step(Step::new("GET", address(&subject.collection, &query)));
}

fn watch(story: &mut Story, subject: &Subject) {
    let mut query = own(subject);
    query.push("watch=1".to_string());
    query.push("timeoutSeconds=1".to_string());
    let from = match story.one_in(6) {
        true => "x".to_string(),
        false => format!("{{rv:{}}}", subject.since),
    };
    query.push(format!("resourceVersion={from}"));
    if story.one_in(2) && subject.namespaced {
        let selector = story.word(LABEL_SELECTORS);
        query.push(format!("labelSelector={selector}"));
    }
    if story.one_in(5) {
        query.push("fieldSelector=metadata.name%3Da".to_string());
    }
    let mut step = Step::new("GET", address(&subject.collection, &query));
    if story.one_in(5) {
        step.accept = story.word(&[TABLE, PARTIAL]);
    }
    story.step(step);
}

/// What is there in the end, and what watchers saw of the way there.
pub fn ending(story: &mut Story, subject: &Subject) {
    let mut query = own(subject);
    story.step(Step::new("GET", address(&subject.collection, &query)));
    query.extend(["watch=1", "timeoutSeconds=1"].map(str::to_string));
    query.push(format!("resourceVersion={{rv:{}}}", subject.since));
    story.step(Step::new("GET", address(&subject.collection, &query)));
}
