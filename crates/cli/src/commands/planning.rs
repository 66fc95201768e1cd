//! `stead plan`: what the operator would do with an application, before anybody applies it.
//!
//! The file is sent to the cluster as a trial, which defaults and checks it as the real thing would; then the
//! operator's own plan is made on what the cluster holds, and every object of it is tried in the same way. Nothing is
//! written.

mod changes;
mod gather;
mod steps;

use crate::commands::connection;
use crate::commands::output::Format;
use crate::failure::Hint;
use crate::terminal::{Colour, Line, Paint, tell};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};
use stead_apis::WebApp;
use stead_apis::webapp::Phase;
use steps::Step;

/// Show what the operator would do with an application, before anybody applies it
#[derive(Args)]
#[command(after_help = "Examples:
  stead plan -f app.yaml
  stead plan -f app.yaml -n production -o json
  kubectl get webapp shop -o yaml | sed s/1.25/1.27/ | stead plan -f -")]
pub struct Arguments {
    /// The file with the application; - is standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Its namespace (default: that of the file, else that of the kubeconfig)
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// What would happen to one application.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outlook {
    namespace: String,
    name: String,
    /// What would be done, in this order.
    steps: Vec<Step>,
    /// What the Ready condition would say first.
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<String>,
    /// What would be told to people.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<String>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let apps = read(&arguments.file)?;
    connection::block_on(async {
        let config = connection::configuration().await?;
        let default = config.default_namespace.clone();
        let client = connection::client(config)?;
        let mut outlooks = Vec::new();
        for written in apps {
            let namespace = arguments.namespace.clone().or_else(|| written.app.namespace());
            outlooks.push(look_ahead(&client, namespace.unwrap_or_else(|| default.clone()), written).await?);
        }
        let paint = Paint::of_output();
        arguments.output.print(&outlooks, || {
            outlooks.iter().flat_map(|outlook| outlook.lines(paint)).collect()
        })
    })
}

/// An application as somebody wrote it.
struct Written {
    app: WebApp,
    /// With everything that is no field of a WebApp.
    document: Value,
}

/// Every WebApp of a file; anything else in it is a mistake.
fn read(file: &Path) -> Result<Vec<Written>> {
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read standard input")?;
    } else {
        text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))
            .hint("give -f a file that exists")?;
    }
    parse(&text).with_context(|| format!("in {}", file.display()))
}

fn parse(text: &str) -> Result<Vec<Written>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .context("not YAML")
        .hint("check the indentation")?;
    let mut apps = Vec::new();
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        let kind = document["kind"].as_str().unwrap_or_default().to_owned();
        if kind.is_empty() {
            return Err(anyhow!("it holds something that is no Kubernetes object"))
                .hint("give a file with apiVersion stead.dev/v1, kind WebApp");
        }
        if kind != "WebApp" {
            return Err(anyhow!("it holds a {kind:?}, and only WebApps have a plan"))
                .hint("leave the other objects out");
        }
        let version = document["apiVersion"].as_str().unwrap_or_default();
        if version != "stead.dev/v1" {
            return Err(anyhow!("it holds a WebApp of apiVersion {version:?}"))
                .hint("the apiVersion of a WebApp is stead.dev/v1");
        }
        let app = WebApp::deserialize(&document)
            .context("not a WebApp")
            .hint("`kubectl explain webapp.spec` describes the fields")?;
        if app.name_any().is_empty() {
            return Err(anyhow!("it holds a WebApp without a name")).hint("give it one in metadata.name");
        }
        apps.push(Written { app, document });
    }
    match apps.is_empty() {
        true => Err(anyhow!("it holds no WebApp")).hint("give a file with apiVersion stead.dev/v1, kind WebApp"),
        false => Ok(apps),
    }
}

async fn look_ahead(client: &Client, namespace: String, written: Written) -> Result<Outlook> {
    let file = written.app;
    let name = file.name_any();
    let apps: Api<WebApp> = Api::namespaced(client.clone(), &namespace);
    let live = apps
        .get_opt(&name)
        .await
        .with_context(|| format!("cannot read webapp {name}"))
        .hint("`stead manifests --only crds | kubectl apply -f -` installs the definition")?;
    misspelt(client, &namespace, written.document, live.as_ref()).await?;
    let candidate = tried(&apps, live, file).await?;
    let seen = gather::seen(client, &namespace, &candidate).await?;
    let plan = stead_webapp::plan::webapp(&candidate, &seen, Timestamp::now());
    let steps = steps::of(client, &namespace, &candidate, &plan).await?;
    let ready = plan.status.as_ref().and_then(|status| {
        let conditions = status["conditions"].as_array()?;
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
        Some(format!("{}: {}", ready["reason"].as_str()?, ready["message"].as_str()?))
    });
    Ok(Outlook {
        namespace,
        name,
        steps,
        ready,
        events: plan
            .events
            .iter()
            .map(|note| format!("{}: {}", note.reason, note.message))
            .collect(),
    })
}

/// Fails for what the cluster does not know, as `kubectl apply` would: a field that is misspelt is not what was meant.
/// What is there is changed, and only what is not is created: to plan a change nobody needs the right, or room in a
/// quota, for another one.
async fn misspelt(client: &Client, namespace: &str, mut document: Value, live: Option<&WebApp>) -> Result<()> {
    document["metadata"]["namespace"] = namespace.into();
    // A file that was read from a cluster says which object and version it was, which is not what it is held against.
    if let Some(metadata) = document["metadata"].as_object_mut() {
        metadata.remove("uid");
        metadata.remove("resourceVersion");
        let version = live.and_then(ResourceExt::resource_version);
        metadata.extend(version.map(|version| ("resourceVersion".to_owned(), version.into())));
    }
    let collection = format!("/apis/stead.dev/v1/namespaces/{namespace}/webapps");
    let options = "dryRun=All&fieldValidation=Strict";
    let request = match live {
        Some(live) => http::Request::put(format!("{collection}/{}?{options}", live.name_any())),
        None => http::Request::post(format!("{collection}?{options}")),
    };
    let request = request
        .header("content-type", "application/json")
        .body(document.to_string().into_bytes())
        .context("cannot ask the cluster")?;
    match client.request_text(request).await {
        Ok(_) => Ok(()),
        // Only the fields were of interest.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error)
            .context("the cluster would refuse it")
            .hint("correct the file; `kubectl explain webapp.spec` describes the fields"),
    }
}

/// The application as the cluster would hold it, with the status that it has now.
async fn tried(apps: &Api<WebApp>, live: Option<WebApp>, file: WebApp) -> Result<WebApp> {
    let trial = PostParams {
        dry_run: true,
        field_manager: Some("stead-plan".to_owned()),
    };
    let status = live.as_ref().and_then(|live| live.status.clone());
    let result = match live {
        Some(mut live) => {
            let name = live.name_any();
            live.spec = file.spec;
            apps.replace(&name, &trial, &live).await
        }
        None => {
            let mut new = file;
            new.metadata.namespace = None;
            apps.create(&trial, &new).await
        }
    };
    let mut candidate = result
        .context("the cluster would refuse it")
        .hint("correct the file; `kubectl explain webapp.spec` describes the fields")?;
    candidate.status = status;
    // One that nobody has looked at yet is only noted at the first look; the second one is of interest.
    candidate
        .status
        .get_or_insert_default()
        .phase
        .get_or_insert(Phase::Created);
    for warning in stead_apis::webapp::validate::warnings(&candidate.spec) {
        tell(Line::Note, &warning);
    }
    Ok(candidate)
}

impl Outlook {
    fn lines(&self, paint: Paint) -> Vec<String> {
        let mut lines = vec![format!("WebApp {}/{}", self.namespace, paint.strong(&self.name))];
        for step in &self.steps {
            lines.extend(step.lines(paint));
        }
        if self.steps.iter().all(Step::is_nothing) {
            lines.push(paint.colour(Colour::Good, "  nothing changes"));
        }
        lines.extend(self.events.iter().map(|event| format!("  tell    {event}")));
        lines.extend(self.ready.iter().map(|ready| format!("  ready   {ready}")));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_webapps_and_nothing_else() {
        let app = "apiVersion: stead.dev/v1\nkind: WebApp\nmetadata: {name: shop}\nspec: {image: 'nginx:1.25'}\n";
        assert_eq!(parse(app).unwrap()[0].app.name_any(), "shop");
        assert_eq!(parse(&format!("{app}---\n{app}")).unwrap().len(), 2);
        let complaint = |text: &str| match parse(text) {
            Ok(_) => panic!("{text} holds no WebApp"),
            Err(error) => format!("{error:#}"),
        };
        assert!(complaint("kind: Pod\n").contains("\"Pod\""));
        assert!(complaint(&app.replace("v1", "v2")).contains("\"stead.dev/v2\""));
        assert!(complaint(&app.replace("name: shop", "")).contains("without a name"));
        assert!(complaint("just: words\n").contains("no Kubernetes object"));
        complaint("");
        complaint("kind: [");
    }
}
