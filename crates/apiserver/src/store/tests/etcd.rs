//! Stories on real etcd members: one dies, or somebody else writes there too.

use super::*;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The etcd that the tests are pinned to; `cargo xtask test` builds it.
const CACHED: &str = "stead/tools/etcd-v3.6.16/etcd";

/// Members on loopback, ended with the value.
pub struct Cluster {
    members: Vec<Member>,
    _directory: tempfile::TempDir,
}

struct Member {
    client: u16,
    process: Child,
}

fn binary() -> Option<PathBuf> {
    let given = std::env::var_os("STEAD_ETCD").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let found = given
        .or_else(|| Some(cache?.join(CACHED)))
        .filter(|path| path.is_file());
    if found.is_none() {
        println!("skipped: no etcd at STEAD_ETCD or in the cache directory under {CACHED}");
    }
    found
}

/// Ports that are free now. All are held until all are found, so that none is given twice.
fn free_ports(count: usize) -> Vec<u16> {
    let held: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    held.iter()
        .map(|listener| listener.local_addr().unwrap().port())
        .collect()
}

impl Cluster {
    /// `None`, with a line that says so, where there is no etcd on this machine.
    pub fn start(size: usize) -> Option<Cluster> {
        let binary = binary()?;
        let directory = tempfile::tempdir().unwrap();
        let ports = free_ports(size * 2);
        let (clients, peers) = ports.split_at(size);
        let url = |port: &u16| format!("http://127.0.0.1:{port}");
        let initial: Vec<_> = peers
            .iter()
            .enumerate()
            .map(|(index, port)| format!("m{index}={}", url(port)))
            .collect();
        let start = |index: usize| {
            let (client, peer) = (url(&clients[index]), url(&peers[index]));
            let name = format!("m{index}");
            let process = Command::new(&binary)
                .arg("--data-dir")
                .arg(directory.path().join(&name))
                .args(["--name", &name, "--initial-cluster", &initial.join(",")])
                .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
                .args(["--log-level", "error", "--unsafe-no-fsync"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let client = clients[index];
            Member { client, process }
        };
        Some(Cluster {
            members: (0..size).map(start).collect(),
            _directory: directory,
        })
    }

    pub fn address(&self, root: &str) -> EtcdAddress {
        let members: Vec<_> = self
            .members
            .iter()
            .map(|member| format!("127.0.0.1:{}", member.client))
            .collect();
        format!("etcd://{}/{root}", members.join(",")).parse().unwrap()
    }

    fn kill(&mut self, member: usize) {
        self.members[member].process.kill().unwrap();
        self.members[member].process.wait().unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            // It may be dead already.
            let _ = member.process.kill();
            let _ = member.process.wait();
        }
    }
}

async fn connect(address: &EtcdAddress) -> Store {
    let clock = Environment::real().clock;
    Store::connect(address, clock, History::default()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_goes_on_while_one_of_three_members_is_killed() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    let address = cluster.address("killed");
    let store = connect(&address).await;
    let mut watch = store.watch(&Prefix::resource("pods"), None).unwrap();
    // Each writer changes its own object, one write after the other, and keeps what it was answered.
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut record = create(&store, &pod("n", &format!("x{writer}"))).await;
                let mut answered = vec![record.revision];
                for step in 2..60 {
                    record = update(&store, &record, step).await;
                    answered.push(record.revision);
                }
                answered
            })
        })
        .collect();
    let mut seen = Vec::new();
    while seen.len() < 40 {
        seen.push(watch.next().await.unwrap().record.revision);
    }
    // The one that both the calls and the watch of the store go to.
    cluster.kill(0);
    while seen.len() < 4 * 59 {
        seen.push(watch.next().await.unwrap().record.revision);
    }
    let mut answered = Vec::new();
    for writer in writers {
        answered.extend(writer.await.unwrap());
    }
    answered.sort();
    assert_eq!(seen, answered, "every answered write is seen once, in order");

    let fresh = connect(&address).await;
    let page = everything(&fresh).await;
    assert_eq!(page.records.len(), 4);
    assert!(page.records.iter().all(|record| step(record) == 59));
    assert_eq!(page.revision, everything(&store).await.revision);
}

#[tokio::test]
async fn two_servers_on_one_etcd_see_each_others_writes_at_once() {
    let Some(cluster) = Cluster::start(1) else { return };
    let address = cluster.address("two");
    let (here, there) = (connect(&address).await, connect(&address).await);
    let first = create(&here, &pod("a", "x")).await;
    let seen = there.get(&pod("a", "x")).await.unwrap().unwrap();
    assert_eq!((seen.revision, &seen.json), (first.revision, &first.json));
    let second = update(&there, &seen, 2).await;
    assert!(matches!(
        here.write(update_of(&first, 3)).await,
        Err(StoreError::Conflict { .. })
    ));
    let gone = delete(&here, &second).await;
    let mut watch = there.watch(&Prefix::resource("pods"), Some(second.revision)).unwrap();
    let event = watch.next().await.unwrap();
    assert_eq!((event.kind, event.record.revision), (EventKind::Deleted, gone.revision));
    assert_eq!(step(&event.record), 0, "the final state comes with the delete");
}

#[tokio::test]
async fn an_etcd_that_is_not_there_is_named() {
    let address: EtcdAddress = format!("etcd://127.0.0.1:{}", free_ports(1)[0]).parse().unwrap();
    let clock = Environment::real().clock;
    let failed = Store::connect(&address, clock, History::default()).await.err().unwrap();
    assert!(
        failed.to_string().starts_with(&format!("cannot reach {address}: ")),
        "{failed}"
    );
}
