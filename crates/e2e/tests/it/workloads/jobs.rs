//! What runs to its end.

use super::{cluster, of};
use crate::binary::{PATIENCE, eventually};

#[test]
fn jobs_and_cron_jobs_finish() {
    let Some(up) = cluster() else { return };
    up.run(&[
        "create",
        "cronjob",
        "minutely",
        "--image=busybox",
        "--schedule=* * * * *",
        "--",
        "echo",
        "ran",
    ]);
    up.run(&[
        "create",
        "job",
        "work",
        "--image=busybox",
        "--",
        "sh",
        "-c",
        "echo worked",
    ]);
    up.run(&["wait", "job/work", "--for=condition=Complete", "--timeout=60s"]);
    assert_eq!(up.run(&["logs", "job/work"]), "worked\n");
    up.apply(
        "apiVersion: batch/v1
kind: Job
metadata: {name: many}
spec:
  completions: 4
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox, command: [sh, -c, 'echo index $JOB_COMPLETION_INDEX']}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: broken}
spec:
  backoffLimit: 1
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox, command: [sh, -c, 'exit 3']}]
",
    );
    up.run(&["wait", "job/many", "--for=condition=Complete", "--timeout=60s"]);
    assert_eq!(of(&up, "job/many", ".status.completedIndexes"), "0-3");
    up.run(&["wait", "job/broken", "--for=condition=Failed", "--timeout=90s"]);
    assert_eq!(
        of(&up, "job/broken", ".status.conditions[?(@.type==\"Failed\")].reason"),
        "BackoffLimitExceeded"
    );

    up.run(&["create", "job", "now", "--from=cronjob/minutely"]);
    up.run(&["wait", "job/now", "--for=condition=Complete", "--timeout=60s"]);
    up.run(&[
        "wait",
        "cronjob/minutely",
        "--for=jsonpath={.status.lastScheduleTime}",
        "--timeout=90s",
    ]);
    eventually("a run of the schedule completes", PATIENCE, || {
        let runs = up.run(&["get", "jobs", "--no-headers"]);
        let done = runs
            .lines()
            .any(|row| row.starts_with("minutely-") && row.contains("Complete"));
        done.then_some(()).ok_or(runs)
    });
}
