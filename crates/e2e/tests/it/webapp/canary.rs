//! A canary that is judged by its error rate, lived through with real processes: people's requests go through the
//! Service to both versions, the pods count them, and the operator reads what the pods counted.

use super::PATIENCE;
use crate::binary::Up;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use stead_apis::WebApp;
use stead_apis::webapp::WebAppStatus;
use stead_machinery::conditions;
use stead_test::kubernetes::client_for;
use stead_test::wait::until;

const NAME: &str = "shop";
const TRIAL: &str = "stead.dev/track=canary";
/// Fewer requests than this are no verdict.
const ENOUGH: u64 = 10;

/// The application and the people who use it.
struct Story {
    client: Client,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_is_promoted_or_taken_back_by_the_error_rate_that_its_pods_count() {
    let parts = "controllers,scheduler,nodes,operators";
    let Some(up) = Up::start(&["--ephemeral", "--parts", parts]) else {
        return;
    };
    let story = Story {
        client: client_for(&up.kubeconfig).await.expect("a client"),
    };
    story.install().await;

    // A good version: it serves, its pods count what it serves, and it takes over once its pause is shortened.
    story.roll_out("2", 0, 3600).await;
    story.pods_on_trial_count_enough().await;
    story.roll_out("2", 0, 0).await;
    story.settles("the good version takes over", "2", "Available").await;

    // A version that looks well and fails people. Its trial would last an hour.
    story.roll_out("3", 50, 3600).await;
    let message = story.settles("the bad version is taken back", "2", "RolledBack").await;
    // An odd number of requests is not halved exactly.
    let share = ["revision 3 failed 50.0 %", "revision 3 failed 4"];
    assert!(share.iter().any(|share| message.starts_with(share)), "{message}");
    assert!(message.contains("revision 2 runs until the spec changes"), "{message}");
    story.told("RolledBack").await;
    for _ in 0..20 {
        let page = story.ask().await.expect("only the good version answers");
        assert!(page.contains("version: 2"), "{page}");
    }

    // The spec changes, and all is well again.
    story.roll_out("4", 0, 0).await;
    story.settles("a mended version takes over", "4", "Available").await;
}

impl Story {
    fn apps(&self) -> Api<WebApp> {
        Api::default_namespaced(self.client.clone())
    }

    async fn install(&self) {
        let app: WebApp = serde_json::from_value(json!({"apiVersion": "stead.dev/v1", "kind": "WebApp",
            "metadata": {"name": NAME}, "spec": spec("1", 0, 10)}))
        .expect("a WebApp");
        until("the kind is served", PATIENCE, || async {
            self.apps().create(&PostParams::default(), &app).await
        })
        .await
        .expect("a WebApp");
        self.settles("the first version is there", "1", "Available").await;
    }

    /// A new version of which so many answers are errors.
    async fn roll_out(&self, version: &str, fail_percent: u32, pause: u32) {
        let patch = Patch::Merge(json!({"spec": spec(version, fail_percent, pause)}));
        let how = PatchParams::default();
        self.apps().patch(NAME, &how, &patch).await.expect("an accepted change");
    }

    /// Asks as people do: through the Service, whichever version answers.
    async fn ask(&self) -> Result<String, kube::Error> {
        let path = format!("/api/v1/namespaces/default/services/{NAME}:80/proxy/");
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
        self.client.request_text(request).await
    }

    /// People ask until the pods on trial have counted enough of it for a verdict.
    async fn pods_on_trial_count_enough(&self) {
        until("pods on trial count requests", PATIENCE, || async {
            // An error is an answer too.
            let _ = self.ask().await;
            let counted = self.counted_on_trial().await.map_err(|error| error.to_string())?;
            (counted >= ENOUGH).then_some(()).ok_or_else(|| format!("{counted}"))
        })
        .await
        .expect("requests to the trial");
    }

    async fn counted_on_trial(&self) -> Result<u64, kube::Error> {
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        let mut counted = 0;
        for pod in pods.list(&ListParams::default().labels(TRIAL)).await?.items {
            let path = format!("/api/v1/namespaces/default/pods/{}:8080/proxy/metrics", pod.name_any());
            let request = http::Request::get(path).body(Vec::new()).expect("a request");
            let page = self.client.request_text(request).await.unwrap_or_default();
            let values = page.lines().filter(|line| line.starts_with("http_requests_total{"));
            counted += values
                .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
                .sum::<u64>();
        }
        Ok(counted)
    }

    /// Waits until no trial is on, all stable pods run this version, and the Ready condition has this reason; gives its
    /// message. People go on asking meanwhile.
    async fn settles(&self, what: &str, version: &str, reason: &str) -> String {
        let deployments: Api<Deployment> = Api::default_namespaced(self.client.clone());
        until(what, PATIENCE, || async {
            let _ = self.ask().await;
            let app = self.apps().get(NAME).await.map_err(|error| error.to_string())?;
            let status: WebAppStatus = app.status.clone().unwrap_or_default();
            let ready = conditions::get(&status.conditions, "Ready")
                .cloned()
                .ok_or("no condition")?;
            let trial = deployments
                .get_opt("shop-canary")
                .await
                .map_err(|error| error.to_string())?;
            let stable = deployments.get(NAME).await.map_err(|error| error.to_string())?;
            let spec = serde_json::to_value(stable.spec).unwrap_or_default();
            let runs = &spec["template"]["spec"]["containers"][0]["env"][0]["value"];
            let settled = ready.reason == reason
                && status.observed_generation == app.metadata.generation
                && status.available_replicas == 2
                && *runs == version
                && trial.is_none();
            settled
                .then(|| ready.message.clone())
                .ok_or_else(|| format!("{ready:?}, version {runs}, {status:?}"))
        })
        .await
        .expect("an end of the roll-out")
    }

    /// Waits for an Event of this reason.
    async fn told(&self, reason: &str) {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let of_it = ListParams::default().fields(&format!("involvedObject.name={NAME},reason={reason}"));
        until("people are told", PATIENCE, || async {
            let found = events.list(&of_it).await.map_err(|error| error.to_string())?;
            (!found.items.is_empty()).then_some(()).ok_or("no event".to_string())
        })
        .await
        .expect("an Event");
    }
}

fn spec(version: &str, fail_percent: u32, pause: u32) -> Value {
    json!({"image": format!("stead/hello:{version}"), "replicas": 2,
        "ports": [{"name": "http", "containerPort": 8080}],
        "env": [{"name": "VERSION", "value": version}, {"name": "FAIL_PERCENT", "value": fail_percent.to_string()}],
        "strategy": {"type": "Canary", "canary": {"steps": [{"percent": 50, "pauseSeconds": pause}],
            "errorRate": {"metric": "http_requests_total", "maxPercent": 10}}}})
}
