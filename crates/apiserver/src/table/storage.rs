//! How volumes, claims and storage classes are printed.

use super::cells::{UNSET, plain, texts};
use super::columns::{AGE, Column, NAME, flag, number, text, wide};
use super::{Printer, Row};
use serde_json::Value;

pub const PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        plural: "persistentvolumes",
        columns: &[
            NAME,
            text("Capacity"),
            text("Access Modes"),
            text("Reclaim Policy"),
            text("Status"),
            text("Claim"),
            text("StorageClass"),
            text("VolumeAttributesClass"),
            text("Reason"),
            AGE,
            wide("VolumeMode"),
        ],
        cells: volume,
    },
    Printer {
        group: "",
        plural: "persistentvolumeclaims",
        columns: &[
            NAME,
            text("Status"),
            text("Volume"),
            text("Capacity"),
            text("Access Modes"),
            text("StorageClass"),
            text("VolumeAttributesClass"),
            AGE,
            wide("VolumeMode"),
        ],
        cells: claim,
    },
    Printer {
        group: "storage.k8s.io",
        plural: "storageclasses",
        columns: &[
            NAME,
            text("Provisioner"),
            text("ReclaimPolicy"),
            text("VolumeBindingMode"),
            text("AllowVolumeExpansion"),
            AGE,
        ],
        cells: class,
    },
    Printer {
        group: "storage.k8s.io",
        plural: "volumeattributesclasses",
        columns: &[NAME, text("DriverName"), AGE],
        cells: |row| vec![row.name(), row.text("/driverName").into(), row.age()],
    },
    Printer {
        group: "storage.k8s.io",
        plural: "csinodes",
        columns: &[NAME, number("Drivers"), AGE],
        cells: |row| vec![row.name(), row.list("/spec/drivers").len().into(), row.age()],
    },
    Printer {
        group: "storage.k8s.io",
        plural: "csidrivers",
        columns: &[
            NAME,
            flag("AttachRequired"),
            flag("PodInfoOnMount"),
            flag("StorageCapacity"),
            text("TokenRequests"),
            flag("RequiresRepublish"),
            text("Modes"),
            AGE,
        ],
        cells: driver,
    },
    Printer {
        group: "storage.k8s.io",
        plural: "volumeattachments",
        columns: &[
            NAME,
            Column {
                format: "name",
                ..text("Attacher")
            },
            text("PV"),
            text("Node"),
            flag("Attached"),
            AGE,
        ],
        cells: |row| {
            vec![
                row.name(),
                row.text("/spec/attacher").into(),
                row.text("/spec/source/persistentVolumeName").into(),
                row.text("/spec/nodeName").into(),
                row.flag("/status/attached").into(),
                row.age(),
            ]
        },
    },
];

/// `RWO,ROX`.
fn modes(list: &Value) -> String {
    let mut short: Vec<&str> = Vec::new();
    for (mode, letters) in [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ] {
        if texts(list).contains(&mode) {
            short.push(letters);
        }
    }
    short.join(",")
}

/// The class of a volume or claim; an old annotation comes before the field.
fn class_name(row: &Row<'_>) -> Value {
    match row.at("/metadata/annotations")["volume.beta.kubernetes.io/storage-class"].as_str() {
        Some(class) => class.into(),
        None => row.text("/spec/storageClassName").into(),
    }
}

fn phase(row: &Row<'_>) -> Value {
    match row.is_deleted() {
        true => "Terminating".into(),
        false => row.text("/status/phase").into(),
    }
}

fn size(value: &Value) -> Value {
    match value {
        Value::Null => "0".into(),
        size => plain(size).into(),
    }
}

fn volume(row: &Row<'_>) -> Vec<Value> {
    let claim = match row.at("/spec/claimRef") {
        Value::Null => String::new(),
        claim => {
            let part = |field: &str| claim[field].as_str().unwrap_or_default();
            format!("{}/{}", part("namespace"), part("name"))
        }
    };
    vec![
        row.name(),
        size(row.at("/spec/capacity/storage")),
        modes(row.at("/spec/accessModes")).into(),
        row.text("/spec/persistentVolumeReclaimPolicy").into(),
        phase(row),
        claim.into(),
        class_name(row),
        row.text_or("/spec/volumeAttributesClassName", UNSET),
        row.text("/status/reason").into(),
        row.age(),
        row.text_or("/spec/volumeMode", UNSET),
    ]
}

fn claim(row: &Row<'_>) -> Vec<Value> {
    let bound = !row.text("/spec/volumeName").is_empty();
    let (capacity, access) = match bound {
        true => (
            size(row.at("/status/capacity/storage")),
            modes(row.at("/status/accessModes")),
        ),
        false => ("".into(), String::new()),
    };
    vec![
        row.name(),
        phase(row),
        row.text("/spec/volumeName").into(),
        capacity,
        access.into(),
        class_name(row),
        row.text_or("/spec/volumeAttributesClassName", UNSET),
        row.age(),
        row.text_or("/spec/volumeMode", UNSET),
    ]
}

fn class(row: &Row<'_>) -> Vec<Value> {
    let mut name = row.text("/metadata/name").to_string();
    let annotations = row.at("/metadata/annotations");
    let marks = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ];
    if marks.iter().any(|mark| annotations[*mark] == "true") {
        name.push_str(" (default)");
    }
    vec![
        name.into(),
        row.text("/provisioner").into(),
        row.text_or("/reclaimPolicy", "Delete"),
        row.text_or("/volumeBindingMode", "Immediate"),
        row.flag("/allowVolumeExpansion").into(),
        row.age(),
    ]
}

fn driver(row: &Row<'_>) -> Vec<Value> {
    let modes = texts(row.at("/spec/volumeLifecycleModes")).join(",");
    let tokens = match row.at("/spec/tokenRequests") {
        Value::Array(requests) => {
            let audiences = requests.iter().map(|r| r["audience"].as_str().unwrap_or_default());
            audiences.collect::<Vec<_>>().join(",")
        }
        _ => UNSET.to_string(),
    };
    vec![
        row.name(),
        row.at("/spec/attachRequired").as_bool().unwrap_or(true).into(),
        row.flag("/spec/podInfoOnMount").into(),
        row.flag("/spec/storageCapacity").into(),
        tokens.into(),
        row.flag("/spec/requiresRepublish").into(),
        if modes.is_empty() {
            super::cells::NONE.into()
        } else {
            modes.into()
        },
        row.age(),
    ]
}
