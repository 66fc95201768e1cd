//! Build Kubernetes operators: manager, cache, work queue, controller, apply, leader election, webhooks.
