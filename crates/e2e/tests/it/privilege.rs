//! The cluster's own controllers act in names of their own, and what they may do is enough.

use crate::binary::{Up, kubectl};
use serde_json::Value;
use std::collections::BTreeSet;

/// Something for every controller.
const EVERYTHING: &str = "apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: quota, namespace: shop}
spec: {hard: {pods: '50', count/deployments.apps: '5'}}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token
metadata: {name: token, namespace: shop, annotations: {kubernetes.io/service-account.name: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: sum}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {sum: 'true'}}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: part, labels: {sum: 'true'}}
rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: shop}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec: {minReplicas: 3, maxReplicas: 5, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, resources: {requests: {cpu: 10m}}}]}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: old, namespace: shop}
spec:
  replicas: 1
  selector: {app: old}
  template:
    metadata: {labels: {app: old}}
    spec: {containers: [{name: old, image: old}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  persistentVolumeClaimRetentionPolicy: {whenScaled: Delete, whenDeleted: Delete}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: db}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: shop}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: agent}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: work, namespace: shop}
spec:
  ttlSecondsAfterFinished: 1
  template:
    metadata: {annotations: {hollow.stead.dev/exit-after: 1s}}
    spec: {restartPolicy: Never, containers: [{name: work, image: work}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick, namespace: shop}
spec:
  schedule: '* * * * *'
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: tick, image: tick}]}}}}
";

#[test]
fn no_controller_is_refused_what_it_does() {
    if kubectl().is_none() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let audit = place.path().join("audit.log");
    let audit_path = audit.display().to_string();
    let arguments = [
        "--ephemeral",
        "--runtime",
        "hollow",
        "--nodes",
        "3",
        "--audit-log",
        &audit_path,
    ];
    let Some(up) = Up::whole(&arguments) else { return };
    up.apply(EVERYTHING);
    let in_shop = |arguments: &[&str]| up.run(&[&["-n", "shop"], arguments].concat());
    for workload in ["deployment/web", "statefulset/db", "daemonset/agent"] {
        in_shop(&["rollout", "status", workload, "--timeout=60s"]);
    }
    in_shop(&["wait", "--for=jsonpath={.data.token}", "secret/token", "--timeout=30s"]);
    in_shop(&["wait", "--for=delete", "job/work", "--timeout=60s"]);
    in_shop(&[
        "wait",
        "--for=jsonpath={.spec.replicas}=3",
        "deployment/web",
        "--timeout=60s",
    ]);
    in_shop(&["scale", "statefulset/db", "--replicas=1"]);
    in_shop(&["wait", "--for=delete", "pvc/data-db-1", "--timeout=60s"]);
    let rules = up.run(&["get", "clusterrole", "sum", "-o", "jsonpath={.rules[0].resources[0]}"]);
    assert_eq!(rules, "pods");
    up.run(&["delete", "namespace", "shop", "--timeout=60s"]);

    let text = std::fs::read_to_string(&audit).expect("an audit log");
    let entries: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let user = |entry: &Value| entry["user"]["username"].as_str().unwrap_or_default().to_string();
    let refused: BTreeSet<String> = entries
        .iter()
        .filter(|entry| entry["responseStatus"]["code"] == 403 && user(entry).starts_with("system:"))
        // What a namespace on its way out refuses is no matter of rights; that creates are allowed was seen above.
        .filter(|entry| entry["verb"] != "create" || entry["objectRef"]["namespace"] != "shop")
        .map(|entry| format!("{} may not {} {}", user(entry), entry["verb"], entry["requestURI"]))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let writers: BTreeSet<String> = entries
        .iter()
        .filter(|entry| !matches!(entry["verb"].as_str(), Some("get" | "list" | "watch")))
        .map(user)
        .collect();
    for controller in [
        "deployment-controller",
        "replicaset-controller",
        "job-controller",
        "persistent-volume-binder",
    ] {
        let name = format!("system:serviceaccount:kube-system:{controller}");
        assert!(writers.contains(&name), "{name} in {writers:#?}");
    }
    assert!(writers.contains("system:kube-scheduler"), "{writers:#?}");
    // Each node writes in its own name, and what they read together nobody writes with.
    for node in ["node-0", "node-1", "node-2"] {
        assert!(writers.contains(&format!("system:node:{node}")), "{writers:#?}");
    }
    assert!(!writers.contains("system:stead:nodes"), "{writers:#?}");
    let powerful: BTreeSet<String> = entries
        .iter()
        .filter(|entry| {
            entry["user"]["groups"]
                .as_array()
                .is_some_and(|all| all.contains(&"system:masters".into()))
        })
        .filter(|entry| entry["objectRef"]["resource"] == "pods" || entry["objectRef"]["resource"] == "leases")
        .map(user)
        .filter(|user| user.starts_with("system:") && !user.contains("operators"))
        .collect();
    assert!(
        powerful.is_empty(),
        "no part of the cluster is all-powerful: {powerful:#?}"
    );
}
