//! Stories of admission: defaults, limits, quotas, standards and policies.

use super::api::Api;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"metadata": {"name": name}, "data": data})
}

fn rule(group: &str, version: &str, resource: &str) -> Value {
    json!({"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE", "UPDATE"], "resources": [resource]})
}

#[tokio::test]
async fn a_pod_gets_priority_and_tolerations() {
    let api = Api::start().await;
    let made = api.post(PODS, pod("p")).await.ok();
    assert_eq!(made["spec"]["priority"], 0);
    assert_eq!(made["spec"]["preemptionPolicy"], "PreemptLowerPriority");
    assert_eq!(made["spec"]["serviceAccountName"], "default");
    let keys: Vec<&str> = made["spec"]["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|t| t["key"].as_str())
        .collect();
    assert_eq!(keys, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
    let mut critical = pod("q");
    critical["spec"]["priorityClassName"] = "nope".into();
    api.post(PODS, critical).await.fails(
        403,
        "Forbidden",
        "pods \"q\" is forbidden: no PriorityClass with name nope was found",
    );
}

#[tokio::test]
async fn a_pod_of_an_account_finds_its_token() {
    let api = Api::start().await;
    let account = json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "s"}]});
    api.post("/api/v1/namespaces/default/serviceaccounts", account)
        .await
        .ok();
    let made = api.post(PODS, pod("p")).await.ok();
    let mount = &made["spec"]["containers"][0]["volumeMounts"][0];
    assert_eq!(mount["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
    let volume = &made["spec"]["volumes"][0];
    assert_eq!(volume["name"], mount["name"]);
    assert_eq!(
        volume["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"],
        3607
    );
    assert_eq!(made["spec"]["imagePullSecrets"][0]["name"], "s");
    let mut without = pod("q");
    without["spec"]["automountServiceAccountToken"] = false.into();
    let made = api.post(PODS, without).await.ok();
    assert!(made["spec"].get("volumes").is_none(), "{made}");
}

#[tokio::test]
async fn a_limit_range_defaults_and_bounds() {
    let api = Api::start().await;
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [{"type": "Container",
        "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}}]}});
    api.post("/api/v1/namespaces/default/limitranges", range).await.ok();
    let made = api.post(PODS, pod("p")).await.ok();
    let resources = &made["spec"]["containers"][0]["resources"];
    assert_eq!(resources["limits"]["cpu"], "500m");
    assert_eq!(resources["requests"]["cpu"], "100m");
    assert_eq!(
        made["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    let mut large = pod("q");
    large["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "2"}});
    api.post(PODS, large).await.fails(
        403,
        "Forbidden",
        "pods \"q\" is forbidden: maximum cpu usage per Container is 1, but limit is 2",
    );
}

#[tokio::test]
async fn a_quota_counts_and_refuses() {
    let api = Api::start().await;
    let path = "/api/v1/namespaces/default/resourcequotas";
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "2"}}});
    let made = api.post(path, quota).await.ok();
    // The controller fills in the status; until then nothing of it is known.
    api.post(MAPS, config_map("a", json!({}))).await.fails(
        403,
        "Forbidden",
        "configmaps \"a\" is forbidden: status unknown for quota: q, resources: configmaps",
    );
    let mut status = made;
    status["status"] = json!({"hard": {"configmaps": "2"}, "used": {"configmaps": "1"}});
    api.put(&format!("{path}/q/status"), status).await.ok();
    api.post(MAPS, config_map("a", json!({}))).await.ok();
    let after = api.get(&format!("{path}/q")).await.ok();
    assert_eq!(after["status"]["used"]["configmaps"], "2");
    api.post(MAPS, config_map("b", json!({}))).await.fails(
        403,
        "Forbidden",
        "configmaps \"b\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2",
    );
    let dry = api
        .post(&format!("{MAPS}?dryRun=All"), config_map("b", json!({})))
        .await;
    assert_eq!(dry.code, 403);
}

#[tokio::test]
async fn a_namespace_enforces_the_restricted_standard() {
    let api = Api::start().await;
    let labels =
        json!({"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "baseline"});
    let namespace = json!({"metadata": {"name": "strict", "labels": labels}});
    api.post("/api/v1/namespaces", namespace).await.ok();
    let pods = "/api/v1/namespaces/strict/pods";
    api.post(pods, pod("p")).await.fails(
        403,
        "Forbidden",
        "pods \"p\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false \
         (container \"c\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities \
         (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \
         \"c\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set \
         securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
    );
    let mut good = pod("p");
    good["spec"]["securityContext"] = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    good["spec"]["containers"][0]["securityContext"] =
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    api.post(pods, good).await.ok();
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i:1"}]}}}});
    let answer = api
        .post("/apis/apps/v1/namespaces/strict/deployments", deployment)
        .await;
    let warning = answer
        .headers
        .get("warning")
        .and_then(|text| text.to_str().ok())
        .unwrap_or_default();
    assert!(
        warning.contains("would violate PodSecurity \\\"baseline:latest\\\": host namespaces (hostNetwork=true)"),
        "{warning}"
    );
    answer.ok();
}

#[tokio::test]
async fn a_policy_denies_with_its_own_message() {
    let api = Api::start().await;
    let policy = json!({"metadata": {"name": "colours"}, "spec": {
        "matchConstraints": {"resourceRules": [rule("", "v1", "configmaps")]},
        "variables": [{"name": "colour", "expression": "object.?data.?colour.orValue('none')"}],
        "matchConditions": [{"name": "not-exempt", "expression": "!request.name.startsWith('exempt')"}],
        "validations": [{"expression": "variables.colour in ['red', 'none']",
            "messageExpression": "'colour ' + variables.colour + ' is not for ' + request.userInfo.username"}],
    }});
    api.post(POLICIES, policy).await.ok();
    // Without a binding a policy says nothing.
    api.post(MAPS, config_map("before", json!({"colour": "blue"})))
        .await
        .ok();
    let binding = json!({"metadata": {"name": "everywhere"}, "spec": {"policyName": "colours", "validationActions": ["Deny", "Audit"]}});
    api.post(BINDINGS, binding).await.ok();
    api.post(MAPS, config_map("red", json!({"colour": "red"}))).await.ok();
    api.post(MAPS, config_map("exempt", json!({"colour": "blue"})))
        .await
        .ok();
    let refused = api.post(MAPS, config_map("blue", json!({"colour": "blue"}))).await;
    let (code, reason, message) = refused.failure();
    assert_eq!((code, reason.as_str()), (422, "Invalid"));
    assert!(
        message.starts_with(
            "configmaps \"blue\" is forbidden: ValidatingAdmissionPolicy 'colours' with binding 'everywhere' denied \
             request: colour blue is not for"
        ),
        "{message}"
    );
}

#[tokio::test]
async fn a_variable_that_fails_does_no_harm_where_nobody_uses_it() {
    let api = Api::start().await;
    let policy = json!({"metadata": {"name": "lazy"}, "spec": {
        "matchConstraints": {"resourceRules": [rule("", "v1", "configmaps")]},
        "variables": [
            {"name": "number", "expression": "int(object.data.number)"},
            {"name": "twice", "expression": "variables.number * 2"},
        ],
        "validations": [{"expression": "!('number' in object.data) || variables.twice < 10",
            "messageExpression": "'twice is ' + string(variables.twice)"}],
    }});
    api.post(POLICIES, policy).await.ok();
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "lazy", "validationActions": ["Deny"]}});
    api.post(BINDINGS, binding).await.ok();
    api.post(MAPS, config_map("unused", json!({"a": "b"}))).await.ok();
    api.post(MAPS, config_map("small", json!({"number": "4"}))).await.ok();
    let (_, _, message) = api
        .post(MAPS, config_map("large", json!({"number": "5"})))
        .await
        .failure();
    assert!(message.ends_with("denied request: twice is 10"), "{message}");
    let (_, _, message) = api
        .post(MAPS, config_map("text", json!({"number": "x"})))
        .await
        .failure();
    let why = "composited variable \"twice\" fails to evaluate: composited variable \"number\" fails to evaluate: ";
    assert!(message.contains(why), "{message}");
}

#[tokio::test]
async fn variables_can_be_asked_for_and_passed_on_as_a_whole() {
    let api = Api::start().await;
    let policy = json!({"metadata": {"name": "whole"}, "spec": {
        "matchConstraints": {"resourceRules": [rule("", "v1", "configmaps")]},
        "variables": [
            {"name": "number", "expression": "int(object.data.number)"},
            {"name": "before", "expression": "dyn(variables).size()"},
        ],
        "validations": [{
            "expression": "variables.?number.orValue(0) + dyn(variables).number + [variables][0].before == 9",
            "messageExpression": "'before it ' + string(variables.before) + ', ' + string(variables.?number.hasValue())",
        }],
    }});
    api.post(POLICIES, policy).await.ok();
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "whole", "validationActions": ["Deny"]}});
    api.post(BINDINGS, binding).await.ok();
    api.post(MAPS, config_map("four", json!({"number": "4"}))).await.ok();
    let refused = api.post(MAPS, config_map("five", json!({"number": "5"}))).await;
    let (_, _, message) = refused.failure();
    assert!(message.ends_with("denied request: before it 1, true"), "{message}");
}

#[tokio::test]
async fn a_chain_of_variables_that_use_one_another_may_be_as_long_as_one_likes() {
    let api = Api::start().await;
    let policy = |name: &str, matched: &str, length: usize, added: &str| {
        let following = (1..length).map(|place| {
            let before = place - 1;
            json!({"name": format!("v{place}"), "expression": format!("variables.v{before}{added}")})
        });
        let variables: Vec<_> = [json!({"name": "v0", "expression": "1"})]
            .into_iter()
            .chain(following)
            .collect();
        let last = length - 1;
        json!({"metadata": {"name": name}, "spec": {
            "matchConstraints": {"resourceRules": [rule("", "v1", matched)]},
            "variables": variables,
            "validations": [{"expression": format!("variables.v{last}{added} != int(object.data.sum)")}],
        }})
    };
    let steps = 110;
    api.post(POLICIES, policy("chain", "configmaps", 1000, " + 1"))
        .await
        .ok();
    api.post(POLICIES, policy("wide", "configmaps", 20, &" + 1".repeat(steps)))
        .await
        .ok();
    for name in ["chain", "wide"] {
        let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
        api.post(BINDINGS, binding).await.ok();
    }
    api.post(MAPS, config_map("a", json!({"sum": "0"}))).await.ok();
    for (policy, sum) in [("chain", 1 + 1000), ("wide", 1 + 20 * steps)] {
        let map = config_map("b", json!({"sum": sum.to_string()}));
        let (_, _, message) = api.post(MAPS, map).await.failure();
        assert!(message.contains(&format!("'{policy}'")), "{message}");
        assert!(message.contains("failed expression: variables.v"), "{message}");
    }
}

#[tokio::test]
async fn a_policy_for_one_version_sees_the_others_as_that_one() {
    let api = Api::start().await;
    let mut policy = json!({"metadata": {"name": "v1"}, "spec": {
        "matchConstraints": {"resourceRules": [rule("autoscaling", "v1", "horizontalpodautoscalers")]},
        "validations": [{"expression": "object.spec.targetCPUUtilizationPercentage < 50",
            "messageExpression": "object.apiVersion + ' of ' + request.kind.version + ' for ' + request.requestKind.version"}],
    }});
    api.post(POLICIES, policy.clone()).await.ok();
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "v1", "validationActions": ["Deny"]}});
    api.post(BINDINGS, binding).await.ok();
    let scalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let scaler = |name: &str, used: i64| {
        let target = json!({"type": "Utilization", "averageUtilization": used});
        json!({"metadata": {"name": name}, "spec": {"maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]}})
    };
    api.post(scalers, scaler("low", 40)).await.ok();
    let (_, _, message) = api.post(scalers, scaler("high", 60)).await.failure();
    assert!(
        message.ends_with("denied request: autoscaling/v1 of v1 for v2"),
        "{message}"
    );
    // One that wants exactly its version is not about the other.
    policy["spec"]["matchConstraints"]["matchPolicy"] = "Exact".into();
    api.merge(&format!("{POLICIES}/v1"), policy).await.ok();
    api.post(scalers, scaler("high", 60)).await.ok();
}

#[tokio::test]
async fn a_policy_is_parameterised_by_an_object() {
    let api = Api::start().await;
    let policy = json!({"metadata": {"name": "sizes"}, "spec": {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": [rule("", "v1", "secrets")]},
        "validations": [{"expression": "size(object.data) <= int(params.data.max)", "reason": "Forbidden"}],
    }});
    api.post(POLICIES, policy).await.ok();
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "sizes", "validationActions": ["Deny"],
        "paramRef": {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}}});
    api.post(BINDINGS, binding).await.ok();
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = |name: &str| json!({"metadata": {"name": name}, "stringData": {"a": "1", "b": "2"}});
    let (_, _, message) = api.post(secrets, secret("s")).await.failure();
    assert!(
        message.contains("no params found for policy binding with `Deny` parameterNotFoundAction"),
        "{message}"
    );
    api.post(MAPS, config_map("limits", json!({"max": "1"}))).await.ok();
    let refused = api.post(secrets, secret("s")).await;
    assert_eq!(refused.code, 403);
    api.merge(&format!("{MAPS}/limits"), json!({"data": {"max": "2"}}))
        .await
        .ok();
    api.post(secrets, secret("s")).await.ok();
}

#[tokio::test]
async fn a_policy_that_does_not_compile_is_refused() {
    let api = Api::start().await;
    let policy = json!({"metadata": {"name": "broken"}, "spec": {
        "matchConstraints": {"resourceRules": [rule("", "v1", "secrets")]},
        "validations": [{"expression": "object.x == nope"}, {"expression": "1 + 1"}],
    }});
    let (code, _, message) = api.post(POLICIES, policy).await.failure();
    assert_eq!(code, 422);
    assert!(
        message.contains(
            "spec.validations[0].expression: Invalid value: \"object.x == nope\": compilation failed: ERROR: \
             <input>:1:13: undeclared reference to 'nope' (in container '')"
        ),
        "{message}"
    );
    assert!(
        message.contains("spec.validations[1].expression: Invalid value: \"1 + 1\": must evaluate to bool"),
        "{message}"
    );
}

#[tokio::test]
async fn a_mutating_policy_changes_a_deployment() {
    let api = Api::start().await;
    let base = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({"metadata": {"name": "sidecar"}, "spec": {
        "matchConstraints": {"resourceRules": [rule("apps", "v1", "deployments")]},
        "failurePolicy": "Fail", "reinvocationPolicy": "Never",
        "mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
                "Object{metadata: Object.metadata{labels: {'made-by': 'policy'}}, spec: Object.spec{replicas: 5}}"}},
            {"patchType": "JSONPatch", "jsonPatch": {"expression":
                "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'a/b': string(object.spec.replicas)}}]"}},
        ],
    }});
    api.post(&format!("{base}/mutatingadmissionpolicies"), policy)
        .await
        .ok();
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "sidecar"}});
    api.post(&format!("{base}/mutatingadmissionpolicybindings"), binding)
        .await
        .ok();
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}});
    let made = api
        .post("/apis/apps/v1/namespaces/default/deployments", deployment)
        .await
        .ok();
    assert_eq!(made["spec"]["replicas"], 5);
    assert_eq!(made["metadata"]["labels"]["made-by"], "policy");
    assert_eq!(made["metadata"]["annotations"]["a/b"], "5");
    assert_eq!(made["spec"]["template"]["spec"]["containers"][0]["name"], "c");
}

#[tokio::test]
async fn claims_get_the_default_class_and_their_protection() {
    let api = Api::start().await;
    let class = json!({"metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "p"});
    api.post("/apis/storage.k8s.io/v1/storageclasses", class).await.ok();
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let made = api
        .post("/api/v1/namespaces/default/persistentvolumeclaims", claim)
        .await
        .ok();
    assert_eq!(made["spec"]["storageClassName"], "fast");
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
}
