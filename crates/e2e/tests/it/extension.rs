//! Extending the API, ours or the real one, with the real kubectl: server-side apply, custom resources, policies and webhooks.

use crate::binary::{PATIENCE, Up, eventually, kubectl};
use k8s_openapi::api::core::v1::ConfigMap;
use std::net::TcpListener;
use stead::Manager;
use stead::webhook::{Asked, Denial, Target, WebhookOptions, Webhooks};
use stead_test::kubernetes::{Parts, client_for};

/// A definition and an object of it in one file, as people write them.
const WELLS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: wells.water.example.com}
spec:
  group: water.example.com
  scope: Namespaced
  names: {plural: wells, singular: well, kind: Well, shortNames: [wl], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.buckets, statusReplicasPath: .status.buckets}
    selectableFields: [{jsonPath: .spec.owner}]
    additionalPrinterColumns:
    - {name: Depth, type: integer, jsonPath: .spec.depth}
    - {name: Owner, type: string, jsonPath: .spec.owner}
    schema:
      openAPIV3Schema:
        type: object
        description: A well in the village.
        properties:
          spec:
            type: object
            description: What the well should be.
            properties:
              depth: {type: integer, minimum: 1, description: Metres to the water.}
              owner: {type: string, default: village}
              buckets: {type: integer, default: 1}
            required: [depth]
            x-kubernetes-validations:
            - {rule: "self.buckets <= self.depth", message: a shallow well has few buckets}
            - {rule: "!has(oldSelf.depth) || self.depth >= oldSelf.depth", message: a well is never filled up}
          status:
            type: object
            properties:
              buckets: {type: integer}
---
apiVersion: water.example.com/v1
kind: Well
metadata: {name: old}
spec: {depth: 12}
---
apiVersion: water.example.com/v1
kind: Well
metadata: {name: new}
spec: {depth: 5, owner: miller}
"#;

fn cluster() -> Option<Up> {
    kubectl()?;
    Up::either()
}

#[test]
fn two_managers_share_an_object_by_server_side_apply() {
    let Some(up) = cluster() else { return };
    let settings = |colour: &str, size: &str| {
        let line = |key: &str, value: &str| match value {
            "" => String::new(),
            value => format!("  {key}: {value}\n"),
        };
        let data = format!("{}{}", line("colour", colour), line("size", size));
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings}}\ndata:\n{data}")
    };
    let apply = |manager: &str, manifest: &str| {
        let file = up.file(&format!("{manager}.yaml"), manifest);
        ["apply", "--server-side", "--field-manager", manager, "-f", &file]
            .map(str::to_owned)
            .to_vec()
    };
    let run = |arguments: Vec<String>| up.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let data = || up.run(&["get", "configmap", "settings", "-o", "jsonpath={.data}"]);

    run(apply("painter", &settings("red", "")));
    run(apply("tailor", &settings("", "large")));
    assert_eq!(data(), r#"{"colour":"red","size":"large"}"#);

    let contested = apply("tailor", &settings("blue", "large"));
    let refusal = up.refused(&contested.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(
        refusal.contains(r#"conflict with "painter": .data.colour"#),
        "{refusal}"
    );
    assert_eq!(
        data(),
        r#"{"colour":"red","size":"large"}"#,
        "a refused apply changes nothing"
    );

    let forced = [contested, vec!["--force-conflicts".to_owned()]].concat();
    run(forced);
    assert_eq!(data(), r#"{"colour":"blue","size":"large"}"#);
    let version = || {
        up.run(&[
            "get",
            "configmap",
            "settings",
            "-o",
            "jsonpath={.metadata.resourceVersion}",
        ])
    };
    let before = version();
    run(apply("tailor", &settings("blue", "large")));
    assert_eq!(version(), before, "an apply that changes nothing writes nothing");

    run(apply("tailor", &settings("blue", "")));
    assert_eq!(
        data(),
        r#"{"colour":"blue"}"#,
        "what only the tailor applied goes with it"
    );
    let managers = up.run(&[
        "get",
        "configmap",
        "settings",
        "--show-managed-fields",
        "-o",
        "jsonpath={.metadata.managedFields[*].manager}",
    ]);
    assert_eq!(managers, "tailor", "the painter owns nothing any more");
}

#[test]
fn a_client_side_apply_becomes_a_server_side_one() {
    let Some(up) = cluster() else { return };
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {colour: red, size: large}\n";
    up.apply(manifest);
    let smaller = up.file("smaller.yaml", &manifest.replace(", size: large", ""));
    up.run(&["apply", "--server-side", "-f", &smaller]);
    assert_eq!(
        up.run(&["get", "configmap", "settings", "-o", "jsonpath={.data}"]),
        r#"{"colour":"red"}"#
    );
}

#[test]
fn one_file_brings_a_definition_and_its_objects() {
    let Some(up) = cluster() else { return };
    // kubectl looks the kind up before it sends anything, so it applies the definition first and asks for the rest again.
    let file = up.file("wells.yaml", WELLS);
    let first = up.kubectl(&["apply", "-f", &file]).output().expect("kubectl starts");
    if !first.status.success() {
        let complaint = String::from_utf8_lossy(&first.stderr).into_owned();
        assert!(complaint.contains("ensure CRDs are installed first"), "{complaint}");
        up.run(&["apply", "-f", &file]);
    }
    let shown = up.run(&["get", "wl"]);
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "DEPTH", "OWNER"], "{shown}");
    assert_eq!(rows[1], ["new", "5", "miller"], "{shown}");
    assert_eq!(rows[2], ["old", "12", "village"], "{shown}");

    let explained = up.run(&["explain", "well.spec.depth"]);
    assert!(explained.contains("Metres to the water."), "{explained}");
    assert_eq!(
        up.run(&["get", "wells", "--field-selector", "spec.owner=miller", "-o", "name"])
            .trim(),
        "well.water.example.com/new"
    );
    up.run(&["scale", "well", "old", "--replicas=3"]);
    assert_eq!(
        up.run(&[
            "get",
            "well",
            "old",
            "-o",
            "jsonpath={.spec.buckets}/{.metadata.generation}"
        ]),
        "3/2"
    );
    up.run(&[
        "patch",
        "well",
        "old",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"spec":{"depth":99},"status":{"buckets":3}}"#,
    ]);
    assert_eq!(
        up.run(&[
            "get",
            "well",
            "old",
            "-o",
            "jsonpath={.spec.depth}/{.status.buckets}/{.metadata.generation}"
        ]),
        "12/3/2",
        "a status write leaves the spec alone"
    );

    for (patch, complaint) in [
        (r#"{"spec":{"depth":0}}"#, "should be greater than or equal to 1"),
        (r#"{"spec":{"buckets":40}}"#, "a shallow well has few buckets"),
        (r#"{"spec":{"depth":11}}"#, "a well is never filled up"),
        (r#"{"spec":{"depth":"deep"}}"#, "must be of type integer"),
    ] {
        let refusal = up.refused(&["patch", "well", "old", "--type=merge", "-p", patch]);
        assert!(refusal.contains(complaint), "{patch}: {refusal}");
    }
    assert!(
        up.run(&["get", "all", "-o", "name"])
            .contains("well.water.example.com/old")
    );

    up.run(&["delete", "crd", "wells.water.example.com", "--timeout=30s"]);
    let gone = up.refused(&["get", "wells"]);
    // Which of the two depends on whether kubectl still has its copy of the discovery document.
    assert!(
        gone.contains("the server doesn't have a resource type")
            || gone.contains("could not find the requested resource"),
        "{gone}"
    );
}

#[test]
fn a_policy_denies_with_its_own_message() {
    let Some(up) = cluster() else { return };
    up.apply(
        r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: taste}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}
  variables:
  - {name: colour, expression: "'colour' in object.data ? object.data.colour : 'none'"}
  validations:
  - expression: "variables.colour != 'puce'"
    messageExpression: "'the colour ' + variables.colour + ' is not for us'"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: taste}
spec: {policyName: taste, validationActions: [Deny]}
"#,
    );
    let loud = ["create", "configmap", "loud", "--from-literal=colour=puce"];
    // Kubernetes' admission learns of a policy a moment later.
    eventually("the policy counts", PATIENCE, || {
        let tried = up.kubectl(&loud).arg("--dry-run=server").output();
        match tried.expect("kubectl starts").status.success() {
            true => Err("it is not refused".to_string()),
            false => Ok(()),
        }
    });
    up.run(&["create", "configmap", "fine", "--from-literal=colour=red"]);
    let refusal = up.refused(&loud);
    assert!(
        refusal.contains(
            "ValidatingAdmissionPolicy 'taste' with binding 'taste' denied request: the colour puce is not for us"
        ),
        "{refusal}"
    );
}

#[test]
fn the_author_of_a_policy_is_told_what_cannot_fit_the_kinds_it_names() {
    if kubectl().is_none() {
        return;
    }
    let Some(up) = Up::either_with(Parts::All) else {
        return;
    };
    up.apply(WELLS.split("---").next().unwrap_or_default());
    eventually("the definition is served", PATIENCE, || {
        let told = up.kubectl(&["explain", "wells.spec.depth"]).output();
        match told.expect("kubectl starts").status.success() {
            true => Ok(()),
            false => Err("nothing to explain".to_string()),
        }
    });
    up.apply(
        r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: odd}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: ["*"], resources: [deployments, deployments/scale]}
    - {apiGroups: [water.example.com], apiVersions: [v1], operations: ["*"], resources: [wells]}
    - {apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [events]}
  variables:
  - {name: size, expression: "object.spec.replicas"}
  - {name: names, expression: "object.metadata.labels.map(name, name)"}
  - {name: wrong, expression: "object.nowhere"}
  validations:
  - {expression: "object.kind == 'Event' || object.spec.replicas > 1"}
  - {expression: "object.spec.depth > 'deep'", messageExpression: "'of ' + object.metadata.name"}
  - {expression: "variables.size > 'a' && variables.wrong == 1 && variables.names.all(name, name > 1)"}
  - {expression: "object.spec.template.spec.containers.all(c, c.ports.all(p, p.containerPort > 1 && p.hostPort == 'x'))"}
  - {expression: "object.spec.strategy.rollingUpdate.maxSurge == 1 && namespaceObject.metadata.name == 'a' && request.name == 'b'"}
  - {expression: "object.spec.template.spec.containers[0].resources.requests['cpu'] == '1'"}
  - {expression: "authorizer.group('').resource('pods').check('get').allowed() && size(object.metadata.creationTimestamp) > 1"}
"#,
    );
    let told = eventually("the policy is looked at", PATIENCE, || {
        let told = up.run(&["get", "validatingadmissionpolicy", "odd", "-o", "jsonpath={.status}"]);
        match told.contains("observedGeneration") {
            true => Ok(told),
            false => Err(told),
        }
    });
    assert_eq!(told, include_str!("extension/typechecking.json").trim_end());
}

fn check(asked: &Asked<ConfigMap>) -> Result<Vec<String>, Denial> {
    let data = asked.object.as_ref().and_then(|object| object.data.as_ref());
    match data.and_then(|data| data.get("colour")).map(String::as_str) {
        Some("puce") => Err(Denial::new("puce is no colour")),
        Some("beige") => Ok(vec!["beige is barely a colour".to_owned()]),
        _ => Ok(Vec::new()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_in_rust_is_called_over_tls() {
    let Some(up) = cluster() else { return };
    let client = client_for(&up.kubeconfig).await.expect("a client");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    up.apply(&configuration(&format!("https://{address}/validate"), "Cg=="));
    let mut options = WebhookOptions::service("default", "taste").target(Target::Validating("taste".to_owned()));
    options.names.push("127.0.0.1".to_owned());
    let manager = Manager::builder(client)
        .name("taste")
        .webhooks(listener, options, Webhooks::new().validate("/validate", check))
        .build();
    let running = tokio::spawn(manager.run(std::future::pending()));

    // Until the manager has written its bundle, every create is refused: that is what failurePolicy Fail means.
    tokio::task::spawn_blocking(move || {
        let loud = [
            "create",
            "configmap",
            "loud",
            "--from-literal=colour=puce",
            "--dry-run=server",
        ];
        eventually("the webhook answers", PATIENCE, || {
            let tried = up.kubectl(&loud).output().expect("kubectl starts");
            let words = String::from_utf8_lossy(&tried.stderr).into_owned();
            match words.contains("puce is no colour") {
                true => Ok(()),
                false => Err(words),
            }
        });
        judged(&up, "puce is no colour", "beige", "beige is barely a colour");
    })
    .await
    .expect("the story holds");
    running.abort();
}

/// A validating configuration for ConfigMaps that asks one address.
pub fn configuration(url: &str, bundle: &str) -> String {
    format!(
        r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {{name: taste}}
webhooks:
- name: taste.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {{url: "{url}", caBundle: "{bundle}"}}
  rules:
  - {{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}}
  matchConditions:
  - {{name: not-the-roots, expression: "object.metadata.name != 'kube-root-ca.crt'"}}
"#
    )
}

/// A webhook's refusal and its warning both reach the person at the terminal.
pub fn judged(up: &Up, refusal: &str, barely: &str, warning: &str) {
    let refused = up.refused(&["create", "configmap", "loud", "--from-literal=colour=puce"]);
    assert!(
        refused.contains("admission webhook \"taste.example.com\" denied the request: "),
        "{refused}"
    );
    assert!(refused.contains(refusal), "{refused}");
    let literal = format!("--from-literal=colour={barely}");
    let warned = up
        .kubectl(&["create", "configmap", "quiet", &literal])
        .output()
        .expect("kubectl starts");
    assert!(warned.status.success());
    let told = String::from_utf8_lossy(&warned.stderr).into_owned();
    assert!(told.contains(&format!("Warning: {warning}")), "{told}");
}
