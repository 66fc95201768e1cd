//! Archives made here, loaded, and found again.

use super::*;
use serde_json::json;
use sha2::{Digest, Sha256};

pub fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        builder.append_data(&mut header, path, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

pub fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// An OCI archive of two layers, the second of which hides a file of the first.
fn archive(name: &str) -> Vec<u8> {
    let layers = [
        tar(&[
            ("bin/app", b"one"),
            ("etc/old", b"x"),
            ("etc/passwd", b"app:x:7:8::/:\n"),
        ]),
        tar(&[("etc/.wh.old", b""), ("etc/new", b"two")]),
    ];
    let config = json!({"config": {"Entrypoint": ["/bin/app"], "Cmd": ["serve"], "Env": ["A=b"], "User": "app",
        "WorkingDir": "/srv"}})
    .to_string();
    let listed: Vec<_> = layers.iter().map(|layer| json!({"digest": digest(layer)})).collect();
    let manifest = json!({"config": {"digest": digest(config.as_bytes())}, "layers": listed}).to_string();
    let index = json!({"manifests": [{"digest": digest(manifest.as_bytes()),
        "annotations": {"org.opencontainers.image.ref.name": name}}]})
    .to_string();
    let blob = |bytes: &[u8]| format!("blobs/sha256/{}", &digest(bytes)[7..]);
    tar(&[
        (&blob(&layers[0]), &layers[0]),
        (&blob(&layers[1]), &layers[1]),
        (&blob(config.as_bytes()), config.as_bytes()),
        (&blob(manifest.as_bytes()), manifest.as_bytes()),
        ("index.json", index.as_bytes()),
    ])
}

#[test]
fn an_archive_is_unpacked_layer_over_layer_and_found_by_its_names() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("app.tar");
    std::fs::write(&file, archive("example.com/team/app:1")).unwrap();
    let images = Store::new(place.path().join("images"));
    assert_eq!(images.load(&file).unwrap(), ["example.com/team/app:1"]);
    assert_eq!(images.load(&file).unwrap().len(), 1, "loading it again changes nothing");
    let (image, root) = images.find("example.com/team/app:1").unwrap();
    assert_eq!(image.entrypoint, ["/bin/app"]);
    assert_eq!(image.env, [("A".to_owned(), "b".to_owned())]);
    assert!(root.join("bin/app").exists() && root.join("etc/new").exists());
    assert!(!root.join("etc/old").exists());
    assert_eq!(user(&root, &image.user), (Some(7), Some(8)));
    assert_eq!(user(&root, "0:5"), (Some(0), Some(5)));
    assert!(images.find("example.com/team/app:2").is_none());
    assert!(images.find(&image.digest).is_some());
}

#[test]
fn bytes_that_do_not_have_their_digest_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("app.tar");
    let bytes = archive("app");
    let changed = String::from_utf8_lossy(&bytes).replace("one", "eno").into_bytes();
    std::fs::write(&file, changed).unwrap();
    let images = Store::new(place.path().join("images"));
    assert!(images.load(&file).unwrap_err().to_string().contains("another digest"));
    std::fs::write(&file, b"nonsense").unwrap();
    assert!(images.load(&file).is_err());
    assert!(images.names().is_empty());
}

#[test]
fn names_are_completed_as_clients_do() {
    assert_eq!(full("nginx"), "docker.io/library/nginx:latest");
    assert_eq!(full("team/app:1"), "docker.io/team/app:1");
    assert_eq!(full("localhost:5000/app"), "localhost:5000/app:latest");
}
