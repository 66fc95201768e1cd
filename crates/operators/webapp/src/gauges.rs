//! Metrics of each application, from the statuses that the cache holds.
//!
//! They follow the cache, not the reconciles: a standby shows the same as the leader, and what is deleted is gone
//! from the next scrape on.

use stead::metrics::Metrics;
use stead::{Key, Store};
use stead_apis::WebApp;
use stead_machinery::conditions;

/// A number that every application has.
struct Figure {
    name: &'static str,
    help: &'static str,
    read: fn(&WebApp) -> f64,
}

const FIGURES: &[Figure] = &[
    Figure {
        name: "stead_webapp_ready",
        help: "Whether the application is as its spec wants it.",
        read: |app| {
            let ready = app
                .status
                .as_ref()
                .is_some_and(|status| conditions::is_true(&status.conditions, "Ready"));
            f64::from(u8::from(ready))
        },
    },
    Figure {
        name: "stead_webapp_rolled_back",
        help: "Whether the last change failed and the last good revision runs instead.",
        read: |app| {
            let ready = app
                .status
                .as_ref()
                .and_then(|status| conditions::get(&status.conditions, "Ready"));
            f64::from(u8::from(ready.is_some_and(|ready| ready.reason == "RolledBack")))
        },
    },
    Figure {
        name: "stead_webapp_replicas",
        help: "Pods that exist.",
        read: |app| app.status.as_ref().map_or(0.0, |status| f64::from(status.replicas)),
    },
    Figure {
        name: "stead_webapp_available_replicas",
        help: "Pods that serve.",
        read: |app| {
            app.status
                .as_ref()
                .map_or(0.0, |status| f64::from(status.available_replicas))
        },
    },
    Figure {
        name: "stead_webapp_revision",
        help: "The revision that the spec stands for.",
        read: |app| {
            let revision = app.status.as_ref().and_then(|status| status.revision);
            revision.unwrap_or_default() as f64
        },
    },
];

fn labels(key: &Key) -> Vec<(&str, &str)> {
    vec![("namespace", key.namespace().unwrap_or_default()), ("name", key.name())]
}

/// Shows the figures of every application from now on.
pub fn show(metrics: &Metrics, apps: &Store<WebApp>) {
    let (own, apps) = (metrics.clone(), apps.clone());
    metrics.registry().before_render(move || {
        let registry = own.registry();
        let mut there = Vec::new();
        apps.for_each(|key, app| {
            for figure in FIGURES {
                registry
                    .gauge(figure.name, figure.help, &labels(key))
                    .set((figure.read)(app));
            }
            there.push(key.clone());
        });
        for figure in FIGURES {
            registry.keep_only(figure.name, there.iter().map(labels));
        }
    });
}
