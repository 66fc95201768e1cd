//! What a definition says of its versions besides their schemas: subresources, columns, conversion.

use crate::verbs::object::strings;
use serde_json::Value;
use stead_machinery::field::FieldError;
use stead_machinery::names::dns1035_label;

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 10] = [
    "binary",
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
    "string",
];
/// The versions of ConversionReview, of which a webhook must know one.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];

/// Kubernetes keeps what is the same in all versions in one place, and names that place.
pub fn per_version<'a>(versions: &'a [Value], field: &'static str) -> Vec<(String, &'a Value)> {
    let alike = versions.iter().all(|version| version[field] == versions[0][field]);
    versions
        .iter()
        .enumerate()
        .filter(|(index, _)| *index == 0 || !alike)
        .map(|(index, version)| match alike {
            true => ("spec".to_string(), version),
            false => (format!("spec.versions[{index}]"), version),
        })
        .collect()
}

pub fn subresource_errors(versions: &[Value], errors: &mut Vec<FieldError>) {
    for (at, version) in per_version(versions, "subresources") {
        let scale = &version["subresources"]["scale"];
        if !scale.is_object() {
            continue;
        }
        let at = format!("{at}.subresources.scale");
        let text = |field: &str| scale[field].as_str().unwrap_or_default();
        for (field, below) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
            let (path, place) = (text(field), format!("{at}.{field}"));
            let part = below.trim_end_matches('.');
            match path {
                "" => errors.push(FieldError::required(place, "")),
                path if !simple_path(path, &place, errors) => {}
                path if !path.starts_with(below) => {
                    errors.push(FieldError::invalid(
                        place,
                        path,
                        format!("should be a json path under {part}"),
                    ));
                }
                _ => {}
            }
        }
        let (path, place) = (text("labelSelectorPath"), format!("{at}.labelSelectorPath"));
        let known = path.starts_with(".spec.") || path.starts_with(".status.");
        if !path.is_empty() && simple_path(path, &place, errors) && !known {
            let detail = "should be a json path under either .spec or .status";
            errors.push(FieldError::invalid(place, path, detail));
        }
    }
}

/// Whether a path begins as paths do; if not, that is an error.
fn simple_path(path: &str, at: &str, errors: &mut Vec<FieldError>) -> bool {
    let simple = path.starts_with('.');
    if !simple {
        let detail = "must be a simple json path starting with .";
        errors.push(FieldError::invalid(at, path, detail));
    }
    simple
}

pub fn column_errors(versions: &[Value], errors: &mut Vec<FieldError>) {
    for (at, version) in per_version(versions, "additionalPrinterColumns") {
        let columns = version["additionalPrinterColumns"].as_array();
        for (index, column) in columns.into_iter().flatten().enumerate() {
            let at = format!("{at}.additionalPrinterColumns[{index}]");
            let text = |field: &str| column[field].as_str().unwrap_or_default();
            if text("name").is_empty() {
                errors.push(FieldError::required(format!("{at}.name"), ""));
            }
            let types = format!("must be one of {}", COLUMN_TYPES.join(","));
            match text("type") {
                "" => errors.push(FieldError::required(format!("{at}.type"), types)),
                kind if !COLUMN_TYPES.contains(&kind) => {
                    errors.push(FieldError::invalid(format!("{at}.type"), kind, types));
                }
                _ => {}
            }
            let format = text("format");
            if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
                let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
                errors.push(FieldError::invalid(format!("{at}.format"), format, detail));
            }
            let place = format!("{at}.JSONPath");
            match text("jsonPath") {
                "" => errors.push(FieldError::required(place, "")),
                path => drop(simple_path(path, &place, errors)),
            }
        }
    }
}

pub fn conversion_errors(conversion: &Value, errors: &mut Vec<FieldError>) {
    const AT: &str = "spec.conversion";
    let webhook = &conversion["webhook"];
    let config = &webhook["clientConfig"];
    let reviews = strings(&webhook["conversionReviewVersions"]);
    match conversion["strategy"].as_str().unwrap_or_default() {
        "" => errors.push(FieldError::required(format!("{AT}.strategy"), "")),
        "Webhook" => {
            client_errors(config, &format!("{AT}.webhookClientConfig"), errors);
            review_errors(&reviews, &format!("{AT}.conversionReviewVersions"), errors);
            return;
        }
        "None" => {}
        other => errors.push(FieldError::not_supported(
            format!("{AT}.strategy"),
            other,
            &["None", "Webhook"],
        )),
    }
    let detail = "should not be set when strategy is not set to Webhook";
    if !config.is_null() {
        errors.push(FieldError::forbidden(format!("{AT}.webhookClientConfig"), detail));
    }
    if !reviews.is_empty() {
        errors.push(FieldError::forbidden(format!("{AT}.conversionReviewVersions"), detail));
    }
}

fn client_errors(config: &Value, at: &str, errors: &mut Vec<FieldError>) {
    if config.is_null() {
        errors.push(FieldError::required(at, "required when strategy is set to Webhook"));
        return;
    }
    match (config["url"].as_str(), config["service"].is_object()) {
        (Some(url), false) => {
            errors.extend(crate::validation::webhook_url(url, &format!("{at}.url")));
        }
        (None, true) => {
            errors.extend(crate::validation::webhook_service(
                &config["service"],
                &format!("{at}.service"),
            ));
        }
        _ => errors.push(FieldError::required(at, "exactly one of url or service is required")),
    }
}

fn review_errors(reviews: &[String], at: &str, errors: &mut Vec<FieldError>) {
    if reviews.is_empty() {
        errors.push(FieldError::required(at, ""));
        return;
    }
    for (index, review) in reviews.iter().enumerate() {
        let place = format!("{at}[{index}]");
        if reviews[..index].contains(review) {
            errors.push(FieldError::invalid(place, review.as_str(), "duplicate version"));
            continue;
        }
        for complaint in dns1035_label(review) {
            errors.push(FieldError::invalid(place.clone(), review.as_str(), complaint));
        }
    }
    if !reviews.iter().any(|review| REVIEWS.contains(&review.as_str())) {
        let detail = format!("must include at least one of {}", REVIEWS.join(", "));
        errors.push(FieldError::invalid(at, serde_json::json!(reviews), detail));
    }
}
