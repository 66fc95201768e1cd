//! Which node is chosen, and what is said when none is.

use super::ledger::Ledger;
use super::{Change, Key, Stuck};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};
use std::sync::Arc;

fn node(name: &str, extra: Value) -> Arc<Node> {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": format!("z-{name}")}},
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "110"}},
    });
    if let Some(spec) = extra.get("spec") {
        node["spec"] = spec.clone();
    }
    Arc::new(serde_json::from_value(node).unwrap())
}

fn pod(name: &str, spec: Value) -> Arc<Pod> {
    let mut full = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]});
    for (key, value) in spec.as_object().unwrap() {
        full[key] = value.clone();
    }
    let meta = json!({"name": name, "namespace": "n", "uid": name, "labels": {"app": "web"}});
    Arc::new(serde_json::from_value(json!({"metadata": meta, "spec": full})).unwrap())
}

fn three() -> Ledger {
    let mut ledger = Ledger::default();
    for name in ["a", "b", "c"] {
        ledger.see_node(&node(name, json!({})));
    }
    ledger
}

/// The node for a pod, or all that is said when there is none.
fn choose(ledger: &mut Ledger, pod: &Arc<Pod>) -> Result<String, String> {
    ledger.choose(pod, &[]).map_err(|refused| {
        let why = match ledger.preempt(pod, &[], &refused, &[]) {
            Ok(candidate) => format!("room is made on {}", candidate.node),
            Err(why) => why,
        };
        format!("{} {why}", refused.words())
    })
}

#[test]
fn pods_lie_evenly_and_a_decision_counts_before_the_cache_has_seen_it() {
    let mut ledger = three();
    let mut chosen: Vec<String> = (0..3)
        .map(|i| choose(&mut ledger, &pod(&format!("p{i}"), json!({}))).unwrap())
        .collect();
    chosen.sort();
    assert_eq!(chosen, ["a", "b", "c"]);
}

#[test]
fn pods_that_ask_for_nothing_lie_evenly_on_large_machines_too() {
    let mut ledger = Ledger::default();
    for name in ["a", "b"] {
        let mut large = Node::clone(&node(name, json!({})));
        large.status =
            serde_json::from_value(json!({"allocatable": {"cpu": "192", "memory": "2Ti", "pods": "1000"}})).unwrap();
        ledger.see_node(&Arc::new(large));
    }
    let chosen: Vec<String> = (0..6)
        .map(|i| {
            let modest = pod(&format!("p{i}"), json!({"containers": [{"name": "c"}]}));
            choose(&mut ledger, &modest).unwrap()
        })
        .collect();
    assert_eq!(chosen.iter().filter(|node| *node == "a").count(), 3, "{chosen:?}");
}

#[test]
fn a_full_cluster_says_so_in_kubernetes_words() {
    let mut ledger = three();
    let big = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]});
    let why = choose(&mut ledger, &pod("big", big)).unwrap_err();
    assert!(why.starts_with("0/3 nodes are available: 3 Insufficient cpu."), "{why}");
}

#[test]
fn a_pod_that_goes_gives_its_space_back() {
    let mut ledger = Ledger::default();
    ledger.see_node(&node("a", json!({})));
    let whole = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]});
    let first = pod("first", whole.clone());
    choose(&mut ledger, &first).unwrap();
    assert!(choose(&mut ledger, &pod("second", whole.clone())).is_err());
    ledger.forget(&first);
    assert_eq!(choose(&mut ledger, &pod("second", whole)).unwrap(), "a");
}

#[test]
fn taints_repel_and_tolerations_admit() {
    let mut ledger = Ledger::default();
    let taint = json!({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}});
    ledger.see_node(&node("a", taint));
    let why = choose(&mut ledger, &pod("p", json!({}))).unwrap_err();
    assert!(why.contains("1 node(s) had untolerated taint(s)"), "{why}");
    let tolerant = json!({"tolerations": [{"key": "gpu", "operator": "Exists"}]});
    assert_eq!(choose(&mut ledger, &pod("q", tolerant)).unwrap(), "a");
}

#[test]
fn a_cordoned_node_takes_nothing_new() {
    let mut ledger = Ledger::default();
    ledger.see_node(&node("a", json!({"spec": {"unschedulable": true}})));
    let why = choose(&mut ledger, &pod("p", json!({}))).unwrap_err();
    assert!(why.contains("1 node(s) were unschedulable"), "{why}");
}

#[test]
fn selectors_and_affinity_choose_nodes() {
    let mut ledger = three();
    assert_eq!(
        choose(&mut ledger, &pod("p", json!({"nodeSelector": {"zone": "z-b"}}))).unwrap(),
        "b"
    );
    let affinity = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["z-a", "z-b"]}]}]}}}});
    assert_eq!(choose(&mut ledger, &pod("q", affinity)).unwrap(), "c");
    let why = choose(&mut ledger, &pod("r", json!({"nodeSelector": {"zone": "nowhere"}}))).unwrap_err();
    assert!(
        why.contains("3 node(s) didn't match Pod's node affinity/selector"),
        "{why}"
    );
}

#[test]
fn anti_affinity_keeps_pods_apart_and_then_says_why() {
    let mut ledger = three();
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}}});
    for i in 0..3 {
        choose(&mut ledger, &pod(&format!("p{i}"), apart.clone())).unwrap();
    }
    let why = choose(&mut ledger, &pod("p3", apart)).unwrap_err();
    assert!(why.contains("3 node(s) didn't match pod anti-affinity rules"), "{why}");
}

#[test]
fn hard_spread_holds_the_skew() {
    let mut ledger = three();
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    let mut chosen: Vec<_> = (0..6)
        .map(|i| choose(&mut ledger, &pod(&format!("p{i}"), spread.clone())).unwrap())
        .collect();
    chosen.sort();
    assert_eq!(chosen, ["a", "a", "b", "b", "c", "c"]);
}

#[test]
fn a_host_port_is_given_once_on_each_node() {
    let mut ledger = three();
    let port = json!({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]});
    for i in 0..3 {
        choose(&mut ledger, &pod(&format!("p{i}"), port.clone())).unwrap();
    }
    let why = choose(&mut ledger, &pod("p3", port)).unwrap_err();
    assert!(why.contains("didn't have free ports"), "{why}");
}

/// A node with two processors that are all taken, by pods as `name priority cpu`.
fn full(ledger: &mut Ledger, name: &str, pods: &[&str]) {
    ledger.see_node(&node(name, json!({})));
    for text in pods {
        let words: Vec<&str> = text.split(' ').collect();
        let spec = json!({"nodeName": name, "priority": words[1].parse::<i32>().unwrap(),
            "containers": [{"name": "c", "resources": {"requests": {"cpu": words[2]}}}]});
        ledger.see_pod(&pod(words[0], spec));
    }
}

fn important(priority: i32, cpu: &str) -> Arc<Pod> {
    let containers = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
    pod("vip", json!({"priority": priority, "containers": containers}))
}

#[track_caller]
fn room(ledger: &mut Ledger, pod: &Arc<Pod>, budgets: &[Arc<PodDisruptionBudget>]) -> Result<String, String> {
    let refused = ledger.choose(pod, &[]).unwrap_err();
    let candidate = ledger.preempt(pod, &[], &refused, budgets)?;
    let victims: Vec<String> = candidate
        .victims
        .iter()
        .filter_map(|one| one.metadata.name.clone())
        .collect();
    Ok(format!("{}: {}", candidate.node, victims.join(" ")))
}

#[test]
fn the_least_important_pods_make_room_and_as_few_as_will_do() {
    let mut ledger = Ledger::default();
    full(&mut ledger, "a", &["low 1 500m", "mid 5 500m", "high 50 1"]);
    assert_eq!(room(&mut ledger, &important(10, "500m"), &[]).unwrap(), "a: low");
    assert_eq!(room(&mut ledger, &important(10, "900m"), &[]).unwrap(), "a: mid low");
    assert_eq!(room(&mut ledger, &important(100, "2"), &[]).unwrap(), "a: high mid low");
}

#[test]
fn the_node_with_the_smallest_loss_is_taken() {
    let mut ledger = Ledger::default();
    full(&mut ledger, "a", &["five 5 2"]);
    full(&mut ledger, "b", &["one 1 1", "two 2 1"]);
    assert_eq!(room(&mut ledger, &important(10, "2"), &[]).unwrap(), "b: two one");
    full(&mut ledger, "c", &["three 2 2"]);
    assert_eq!(room(&mut ledger, &important(10, "2"), &[]).unwrap(), "c: three");
}

#[test]
fn a_hundred_nodes_are_compared_and_no_more_when_one_of_them_will_do() {
    let mut ledger = Ledger::default();
    for number in 0..150 {
        let priority = if number == 120 { 1 } else { 5 };
        let name = format!("n{number:03}");
        full(&mut ledger, &name, &[&format!("on-{name} {priority} 2")]);
    }
    assert_eq!(room(&mut ledger, &important(10, "2"), &[]).unwrap(), "n000: on-n000");
}

#[test]
fn a_pod_that_never_had_a_place_gives_none_free() {
    let stuck = Stuck::default();
    let gone = |pod: &Arc<Pod>| stuck.is_room(&Change::Deleted(pod.clone()));
    let waiting = pod("waiting", json!({}));
    assert!(!gone(&waiting));
    assert!(gone(&pod("placed", json!({"nodeName": "a"}))));
    stuck.place(&Key::of(&*waiting));
    assert!(gone(&waiting), "it counted on its node before anybody saw it there");
}

#[test]
fn pods_that_a_budget_protects_are_spared_while_others_do() {
    let mut ledger = Ledger::default();
    full(&mut ledger, "a", &["kept 1 1", "free 5 1"]);
    let labelled = |name: &str| -> Arc<Pod> {
        let spec = json!({"nodeName": "a", "priority": 1,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]});
        let mut pod = (*pod(name, spec)).clone();
        pod.metadata.labels = Some([("app".to_string(), "db".to_string())].into());
        Arc::new(pod)
    };
    ledger.see_pod(&labelled("kept"));
    let budget = json!({"metadata": {"name": "db", "namespace": "n"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}}, "status": {"disruptionsAllowed": 0}});
    let budget: Arc<PodDisruptionBudget> = Arc::new(serde_json::from_value(budget).unwrap());
    assert_eq!(room(&mut ledger, &important(10, "1"), &[]).unwrap(), "a: kept");
    assert_eq!(room(&mut ledger, &important(10, "1"), &[budget]).unwrap(), "a: free");
}

#[test]
fn what_preemption_cannot_do_it_says() {
    let mut ledger = Ledger::default();
    full(&mut ledger, "a", &["equal 10 2"]);
    ledger.see_node(&node("b", json!({"spec": {"unschedulable": true}})));
    let why = choose(&mut ledger, &important(10, "1")).unwrap_err();
    assert_eq!(
        why,
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. preemption: 0/2 nodes are \
         available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
    );
    let polite = pod("polite", json!({"priority": 90, "preemptionPolicy": "Never"}));
    let why = choose(&mut ledger, &polite).unwrap_err();
    assert!(
        why.ends_with("preemption: not eligible due to preemptionPolicy=Never."),
        "{why}"
    );
    let why = choose(&mut ledger, &important(100, "64")).unwrap_err();
    assert!(
        why.ends_with("preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."),
        "{why}"
    );
}

#[test]
fn room_that_was_made_is_kept_for_whom_it_was_made() {
    let mut ledger = Ledger::default();
    full(&mut ledger, "a", &["low 1 2"]);
    let vip = important(10, "2");
    room(&mut ledger, &vip, &[]).unwrap();
    ledger.nominate(vip.clone(), "a".to_string());
    ledger.forget(&pod("low", json!({})));
    let other = pod("other", json!({"priority": 5}));
    assert!(choose(&mut ledger, &other).unwrap_err().contains("1 Insufficient cpu"));
    assert_eq!(choose(&mut ledger, &vip).unwrap(), "a");
}

#[test]
fn a_volume_of_one_node_draws_its_pod_there() {
    use super::filter::volumes::{Need, Source};
    let mut ledger = three();
    let volume = |node: &str| -> Arc<PersistentVolume> {
        let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [format!("z-{node}")]}]});
        let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}});
        let volume = json!({"metadata": {"name": node}, "spec": spec, "status": {"phase": "Available"}});
        Arc::new(serde_json::from_value(volume).unwrap())
    };
    let bound = [Need::Bound(volume("b"))];
    assert_eq!(ledger.choose(&pod("p", json!({})), &bound).unwrap(), "b");
    let away = [Need::Bound(volume("elsewhere"))];
    let refused = ledger.choose(&pod("q", json!({})), &away).unwrap_err();
    assert_eq!(
        refused.words(),
        "0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity."
    );
    let claim = json!({"metadata": {"name": "data", "namespace": "n"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let open = |candidates: Vec<Arc<PersistentVolume>>, source| {
        [Need::Open {
            claim: Arc::new(serde_json::from_value(claim.clone()).unwrap()),
            candidates,
            source,
        }]
    };
    assert_eq!(
        ledger
            .choose(&pod("r", json!({})), &open(vec![volume("c")], Source::Made))
            .unwrap(),
        "c"
    );
    let refused = ledger
        .choose(&pod("s", json!({})), &open(Vec::new(), Source::Made))
        .unwrap_err();
    assert_eq!(
        refused.words(),
        "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind."
    );
    ledger
        .choose(&pod("t", json!({})), &open(Vec::new(), Source::Provisioned))
        .unwrap();
}
