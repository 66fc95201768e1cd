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

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
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
        "WorkingDir": "/srv"}, "rootfs": {"diff_ids": layers.each_ref().map(|layer| digest(layer))}})
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
fn what_was_cut_short_is_removed_and_what_is_under_way_is_left() {
    let place = tempfile::tempdir().unwrap();
    let images = Store::new(place.path().to_owned());
    let cut = place.path().join("loading-1");
    std::fs::create_dir(&cut).unwrap();
    let under_way = images.workshop(PULLING).unwrap();
    let next = images.workshop(LOADING).unwrap();
    assert!(!cut.exists() && under_way.path.exists());
    drop((under_way, next));
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn names_that_are_told_at_the_same_time_are_all_known() {
    let place = tempfile::tempdir().unwrap();
    let images = Store::new(place.path().to_owned());
    std::thread::scope(|scope| {
        for number in 0..8 {
            let images = &images;
            scope.spawn(move || {
                let told = BTreeMap::from([(format!("n{number}"), "d".to_owned())]);
                images.make_known(&images.alone().unwrap(), told).unwrap();
            });
        }
    });
    assert_eq!(images.names().len(), 8);
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
    let mode = std::fs::metadata(place.path().join("images"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700, "nobody else reaches what runs as its owner");
}

#[test]
fn layers_that_the_configuration_does_not_name_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let (real, evil) = (tar(&[("bin/app", b"real")]), tar(&[("bin/app", b"evil")]));
    let check = |layers: &[&[u8]]| {
        let layers = layers.iter().enumerate().map(|(number, bytes)| {
            let path = place.path().join(number.to_string());
            std::fs::write(&path, bytes).unwrap();
            path
        });
        let image = Found {
            names: Vec::new(),
            digest: "sha256:0".to_owned(),
            config: json!({"rootfs": {"type": "layers", "diff_ids": [digest(&real)]}}),
            layers: layers.collect(),
        };
        let root = tempfile::tempdir().unwrap();
        archive::unpack(&image, root.path(), &Budget::of(1 << 20)).map_err(|error| error.to_string())
    };
    check(&[&real]).unwrap();
    check(&[&gzip(&real)]).unwrap();
    let in_two = [gzip(&real[..100]), gzip(&real[100..])].concat();
    check(&[&in_two]).unwrap();
    assert!(check(&[&evil]).unwrap_err().contains("is not the layer sha256:"));
    let longer = [real.as_slice(), b"more"].concat();
    assert!(check(&[&longer]).unwrap_err().contains("is not the layer sha256:"));
    assert!(
        check(&[&real, &evil])
            .unwrap_err()
            .contains("names 1 layers, and it has 2")
    );
    assert!(check(&[]).unwrap_err().contains("names 1 layers, and it has 0"));
}

#[test]
fn few_bytes_that_unpack_to_very_many_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let layer = tar(&[("zeros", &vec![0; 8 << 20])]);
    let path = place.path().join("layer");
    std::fs::write(&path, gzip(&layer)).unwrap();
    let image = Found {
        names: Vec::new(),
        digest: "sha256:0".to_owned(),
        config: json!({"rootfs": {"diff_ids": [digest(&layer)]}}),
        layers: vec![path.clone()],
    };
    let unpack = |bytes: u64| {
        let root = tempfile::tempdir_in(place.path()).unwrap();
        archive::unpack(&image, root.path(), &Budget::of(bytes)).map_err(|error| error.to_string())
    };
    unpack(9 << 20).unwrap();
    let error = unpack(1 << 20).unwrap_err();
    assert!(error.contains("more than the disk has room for"), "{error}");
    let spread = place.path().join("spread");
    std::fs::create_dir(&spread).unwrap();
    let read = archive::read(&path, &spread, &Budget::of(1 << 20))
        .map(drop)
        .unwrap_err();
    assert!(read.to_string().contains("more than the disk has room for"), "{read}");
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
