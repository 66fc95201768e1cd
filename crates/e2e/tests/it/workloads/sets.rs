//! Sets whose pods have names and data of their own.

use super::{cluster, of};

#[test]
fn a_stateful_set_keeps_names_and_data() {
    let Some(up) = cluster() else { return };
    let data = up.place.path().join("data");
    let set = format!(
        "apiVersion: v1
kind: Service
metadata: {{name: db}}
spec: {{clusterIP: None, selector: {{app: db}}, ports: [{{port: 5432}}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: db}}
spec:
  serviceName: db
  replicas: 2
  selector: {{matchLabels: {{app: db}}}}
  template:
    metadata: {{labels: {{app: db}}}}
    spec:
      terminationGracePeriodSeconds: 0
      volumes: [{{name: data, hostPath: {{path: {data}, type: DirectoryOrCreate}}}}]
      containers:
      - name: db
        image: busybox
        env: [{{name: NAME, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}]
        command: [sh, -c, 'echo $(hostname) $GENERATION >> /data/boots; exec sleep 1000000']
        volumeMounts: [{{name: data, mountPath: /data, subPathExpr: $(NAME)}}]
",
        data = data.display()
    );
    up.apply(&set);
    let rolled = || up.run(&["rollout", "status", "statefulset/db", "--timeout=60s"]);
    rolled();
    let boots = |pod: &str| up.run(&["exec", pod, "--", "cat", "/data/boots"]);
    assert_eq!(boots("db-1"), "db-1\n");
    let first = of(&up, "pod/db-0", ".metadata.uid");
    up.run(&["delete", "pod", "db-0"]);
    rolled();
    up.run(&["wait", "pod/db-0", "--for=condition=Ready", "--timeout=60s"]);
    assert_ne!(of(&up, "pod/db-0", ".metadata.uid"), first);
    assert_eq!(boots("db-0"), "db-0\ndb-0\n");
    let found = up.run(&[
        "exec",
        "db-0",
        "--",
        "getent",
        "hosts",
        "db-1.db.default.svc.cluster.local",
    ]);
    assert!(found.contains(&of(&up, "pod/db-1", ".status.podIP")), "{found}");

    up.run(&["set", "env", "statefulset/db", "GENERATION=new"]);
    rolled();
    assert_eq!(boots("db-1"), "db-1\ndb-1 new\n");
    up.run(&["rollout", "undo", "statefulset/db"]);
    rolled();
    up.run(&["scale", "statefulset/db", "--replicas=1"]);
    up.run(&["wait", "pod/db-1", "--for=delete", "--timeout=60s"]);
    up.run(&["scale", "statefulset/db", "--replicas=2"]);
    rolled();
    assert_eq!(boots("db-1").lines().count(), 4, "{}", boots("db-1"));
}
