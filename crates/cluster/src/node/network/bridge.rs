//! Pods on a bridge inside a network namespace of the cluster's own.
//!
//! One thread lives in that namespace for good, with a small runtime: sockets made on it reach pods, and pods
//! reach sockets that listen on it. Interfaces are made by netlink, so that no program has to be installed.

use super::addresses::Addresses;
use super::held::{Held, hold};
use super::range::{BRIDGED, Range};
use super::spares::{Spare, Spares};
use super::{Attached, Network, datagrams};
use crate::node::process::shim::strange;
use crate::node::process::spec::{ProcessId, Processes, SandboxRecord, load, store};
use crate::node::process::users::{Standing, Users};
use crate::node::registration::Ground;
use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use nix::sched::{CloneFlags, setns};
use rtnetlink::packet_route::route::{RouteScope, RouteType};
use rtnetlink::{Handle, LinkBridge, LinkUnspec, LinkVeth, RouteMessageBuilder};
use std::fs::File;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::{TcpStream, UdpSocket};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// The bridge's own address: the pods' way to Services and to DNS.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The range is reserved for tests of network devices: no real network has it.
const PREFIX: u8 = 15;
const BRIDGE: &str = "stead0";
/// The kernel's table of addresses that are its own.
const LOCAL_TABLE: u32 = 255;
const RECORD: &str = "network.json";
/// A program of a pod that does not take a connection for so long takes none.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// The bridge and the thread in its namespace.
pub struct Bridge {
    runtime: tokio::runtime::Handle,
    /// The runtime on the machine's own network.
    home: tokio::runtime::Handle,
    links: Handle,
    own: PathBuf,
    /// Where the cluster keeps its records.
    folder: PathBuf,
    pub(super) addresses: Addresses,
    pub(super) spares: Spares,
}

/// A failure of netlink, as an input or output error.
fn failed(error: rtnetlink::Error) -> io::Error {
    io::Error::other(error.to_string())
}

fn index(name: &str) -> io::Result<u32> {
    Ok(nix::net::if_::if_nametoindex(name)?)
}

impl Bridge {
    pub async fn open(own: &Path, folder: &Path, range: Range) -> io::Result<Bridge> {
        let record = folder.join(RECORD);
        let holder = match load::<ProcessId>(&record).filter(|holder| holder.is_alive()) {
            Some(holder) => holder,
            None => {
                let held = hold(own, folder, "net", None).await?;
                let holder = held.process;
                store(&record, &holder)?;
                held.let_go()?;
                holder
            }
        };
        let space = File::open(format!("/proc/{}/ns/net", holder.pid))?;
        let (sender, receiver) = tokio::sync::oneshot::channel();
        std::thread::Builder::new()
            .name("stead-pod-network".to_owned())
            .spawn(move || live_inside(space, sender))?;
        let (runtime, links) = receiver.await.map_err(io::Error::other)??;
        let addresses = Addresses::new(BRIDGED, range);
        Ok(Bridge {
            runtime,
            home: tokio::runtime::Handle::current(),
            links,
            own: own.to_owned(),
            folder: folder.to_owned(),
            addresses,
            spares: Spares::default(),
        })
    }

    /// Runs something where an address can be reached: on the thread inside, or where the machine's own network is,
    /// whatever thread asks. Dropping the wait ends the work.
    async fn towards<T: Send + 'static>(
        &self,
        address: IpAddr,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let place = if self.owns(address) { &self.runtime } else { &self.home };
        self.check(address)?;
        run(place, work).await
    }

    /// Refuses the address of a pod that is on another network of this kind: nothing would answer there, and it takes
    /// seconds to know.
    fn check(&self, address: IpAddr) -> io::Result<()> {
        let is_here = address == GATEWAY || self.addresses.contains(address);
        match self.owns(address) && !is_here {
            true => Err(io::Error::new(
                io::ErrorKind::HostUnreachable,
                format!("no route to host: {address} is on the network of another node"),
            )),
            false => Ok(()),
        }
    }

    /// Gives a sandbox that is ready to a pod that needs nothing special.
    async fn attach_spare(&self, hostname: &str, processes: Processes) -> Option<Attached> {
        if processes == Processes::Pod {
            return None;
        }
        let dead = |address| self.addresses.give_back(IpAddr::V4(address));
        let Spare { held, address } = self.spares.take(dead)?;
        match rename(held.process, hostname.to_owned()).await {
            Ok(()) => Some(Attached {
                address: IpAddr::V4(address),
                holder: Some(held),
            }),
            Err(error) => {
                tracing::debug!(%error, "a spare sandbox could not be used");
                held.end();
                self.addresses.give_back(IpAddr::V4(address));
                None
            }
        }
    }

    /// Makes a sandbox for containers with processes of their own.
    pub(super) async fn sandbox(&self, hostname: Option<&str>, address: Ipv4Addr) -> io::Result<Held> {
        self.sandbox_of("net,ipc,uts", hostname, address).await
    }

    async fn sandbox_of(&self, spaces: &str, hostname: Option<&str>, address: Ipv4Addr) -> io::Result<Held> {
        let held = hold(&self.own, &self.folder, spaces, hostname).await?;
        self.connect_pod(held.process, address).await?;
        Ok(held)
    }

    async fn connect_pod(&self, holder: ProcessId, address: Ipv4Addr) -> io::Result<()> {
        let links = self.links.clone();
        let [_, _, third, fourth] = address.octets();
        let name = format!("pod{third}-{fourth}");
        let peer = format!("p{third}-{fourth}");
        let far = peer.clone();
        let pid = u32::try_from(holder.pid).map_err(io::Error::other)?;
        run(&self.runtime, async move { plug(&links, &name, &far, pid).await }).await?;
        let space = File::open(format!("/proc/{}/ns/net", holder.pid))?;
        // A thread of its own, because a thread that has joined a namespace is of no use to anybody else.
        let (sender, receiver) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let _ = sender.send(in_namespace(space, || configure_pod(&peer, address)));
        });
        receiver.await.map_err(io::Error::other)?
    }
}

/// Runs something on a runtime; dropping the wait ends it.
async fn run<T: Send + 'static>(
    place: &tokio::runtime::Handle,
    work: impl Future<Output = io::Result<T>> + Send + 'static,
) -> io::Result<T> {
    let ended = AbortOnDropHandle::new(place.spawn(work)).await;
    ended.map_err(io::Error::other).flatten()
}

#[async_trait]
impl Network for Bridge {
    fn ground(&self, standing: Standing) -> Ground {
        match standing {
            Standing::Mapped(Users::Own) => Ground::UserNamespace,
            Standing::Mapped(Users::Range) => Ground::UserRange,
            Standing::Root | Standing::Ordinary => Ground::Namespaces,
        }
    }

    fn note(&self) -> &'static str {
        match self.addresses.range {
            Range::Own => "",
            Range::Joined(_) => {
                " Their network is this node's alone: they reach pods of other nodes, and are reached by them, by \
                 port-forward only."
            }
        }
    }

    fn pod_range(&self) -> Option<String> {
        self.addresses.written()
    }

    async fn attach(&self, hostname: &str, processes: Processes) -> io::Result<Attached> {
        if let Some(attached) = self.attach_spare(hostname, processes).await {
            return Ok(attached);
        }
        let address = self.addresses.take()?;
        let holder = match processes {
            Processes::Pod => self.sandbox_of("net,ipc,uts,pid", Some(hostname), address).await,
            Processes::Own | Processes::Target(_) | Processes::Host => self.sandbox(Some(hostname), address).await,
        };
        if holder.is_err() {
            self.addresses.give_back(IpAddr::V4(address));
        }
        Ok(Attached {
            address: IpAddr::V4(address),
            holder: Some(holder?),
        })
    }

    async fn attach_to_machine(&self, address: IpAddr, processes: Processes) -> io::Result<Attached> {
        let spaces = match processes {
            Processes::Pod => "ipc,pid",
            Processes::Own | Processes::Target(_) | Processes::Host => "ipc",
        };
        let holder = Some(hold(&self.own, &self.folder, spaces, None).await?);
        Ok(Attached { address, holder })
    }

    fn adopt(&self, address: IpAddr) {
        self.addresses.keep(address);
    }

    fn give_back(&self, address: IpAddr) {
        self.addresses.give_back(address);
    }

    async fn keep_ready(&self, stop: &CancellationToken) {
        self.keep_spares(stop).await;
    }

    fn owns(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => address.octets()[0] == 198 && address.octets()[1] & 0xfe == 18,
            IpAddr::V6(_) => false,
        }
    }

    async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        self.towards(to.ip(), TcpStream::connect(to)).await
    }

    async fn connect_to_pod(&self, pod: &SandboxRecord, port: u16) -> io::Result<TcpStream> {
        match pod.holder {
            Some(holder) => connect_within(holder, port).await,
            None => self.connect(pod.at(port)?).await,
        }
    }

    async fn datagrams_to(&self, to: SocketAddr) -> io::Result<UdpSocket> {
        self.towards(to.ip(), datagrams(to)).await
    }

    fn gateway(&self) -> Option<Ipv4Addr> {
        Some(GATEWAY)
    }

    async fn serve_address(&self, address: Ipv4Addr) -> io::Result<()> {
        let links = self.links.clone();
        run(&self.runtime, async move {
            let route = RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(address, 32)
                .output_interface(index("lo")?)
                .table_id(LOCAL_TABLE)
                .scope(RouteScope::Host)
                .kind(RouteType::Local)
                .build();
            links.route().add(route).replace().execute().await.map_err(failed)
        })
        .await
    }

    async fn inside(&self, work: BoxFuture<'static, io::Result<()>>) -> io::Result<()> {
        run(&self.runtime, work).await
    }
}

/// Connects to a port of a pod from within it, as `localhost`: its programs may listen there alone, or ask that whoever
/// comes is there.
async fn connect_within(holder: ProcessId, port: u16) -> io::Result<TcpStream> {
    let hosts = [
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
    ];
    let space = strange(holder.pid, "net")?;
    // Its number may be another process' by now, with another network; one that lives after it was opened was it.
    if !holder.is_alive() {
        return Err(io::Error::other("the pod has ended"));
    }
    let Some(space) = space else {
        return TcpStream::connect(&hosts[..]).await;
    };
    let connect = async move || {
        let connected = tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect(&hosts[..])).await;
        connected.map_err(io::Error::from).flatten()?.into_std()
    };
    let (sender, receiver) = tokio::sync::oneshot::channel();
    // A thread of its own, because a thread that has joined a namespace is of no use to anybody else.
    std::thread::Builder::new().spawn(move || {
        let _ = sender.send(in_namespace(space, connect));
    })?;
    TcpStream::from_std(receiver.await.map_err(io::Error::other)??)
}

/// Gives the machine of a sandbox its name.
async fn rename(holder: ProcessId, hostname: String) -> io::Result<()> {
    let space = File::open(format!("/proc/{}/ns/uts", holder.pid))?;
    let (sender, receiver) = tokio::sync::oneshot::channel();
    // A thread of its own, which goes with the name that it has seen.
    std::thread::spawn(move || {
        let renamed = setns(space, CloneFlags::CLONE_NEWUTS).and_then(|()| nix::unistd::sethostname(hostname));
        let _ = sender.send(renamed);
    });
    Ok(receiver.await.map_err(io::Error::other)??)
}

/// Joins a network namespace with this thread and runs async work there.
fn in_namespace<T, W: Future<Output = io::Result<T>>>(space: File, work: impl FnOnce() -> W) -> io::Result<T> {
    setns(space, CloneFlags::CLONE_NEWNET)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work())
}

type Inside = io::Result<(tokio::runtime::Handle, Handle)>;

/// The thread's whole life: sets the bridge up, then serves whatever is spawned on its runtime.
fn live_inside(space: File, ready: tokio::sync::oneshot::Sender<Inside>) {
    let mut ready = Some(ready);
    let result = in_namespace(space, || {
        async {
            let links = netlink()?;
            configure_bridge(&links).await?;
            if let Some(ready) = ready.take() {
                let _ = ready.send(Ok((tokio::runtime::Handle::current(), links)));
            }
            std::future::pending::<io::Result<()>>().await
        }
        .boxed_local()
    });
    if let (Err(error), Some(ready)) = (result, ready) {
        let _ = ready.send(Err(error));
    }
}

fn netlink() -> io::Result<Handle> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    tokio::spawn(connection);
    Ok(handle)
}

async fn configure_bridge(links: &Handle) -> io::Result<()> {
    up(links, "lo").await?;
    if index(BRIDGE).is_err() {
        links
            .link()
            .add(LinkBridge::new(BRIDGE).build())
            .execute()
            .await
            .map_err(failed)?;
    }
    address(links, BRIDGE, GATEWAY).await?;
    up(links, BRIDGE).await
}

/// Makes a pair of interfaces, one at the bridge and one in the network of a process or thread.
async fn plug(links: &Handle, near: &str, far: &str, process: u32) -> io::Result<()> {
    if let Ok(left) = index(near) {
        // Its pod died with nobody to clean up after it.
        links.link().del(left).execute().await.map_err(failed)?;
    }
    links
        .link()
        .add(LinkVeth::new(near, far).build())
        .execute()
        .await
        .map_err(failed)?;
    let given = LinkUnspec::new_with_index(index(far)?).setns_by_pid(process).build();
    links.link().set(given).execute().await.map_err(failed)?;
    let plugged = LinkUnspec::new_with_index(index(near)?)
        .controller(index(BRIDGE)?)
        .up()
        .build();
    links.link().set(plugged).execute().await.map_err(failed)
}

/// Makes once what pods are connected by, in the network of this thread: a kernel may have namespaces and no bridges, or
/// no pairs of interfaces, and every single pod would fail of it.
pub fn try_here() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Of the thread and not of its process, which may be on another network: that is the machine's.
    let own = u32::try_from(nix::unistd::gettid().as_raw()).map_err(io::Error::other)?;
    runtime.block_on(async {
        let links = netlink()?;
        configure_bridge(&links).await?;
        plug(&links, "near", "far", own).await
    })
}

async fn configure_pod(interface: &str, own: Ipv4Addr) -> io::Result<()> {
    let links = netlink()?;
    up(&links, "lo").await?;
    let renamed = LinkUnspec::new_with_index(index(interface)?).name("eth0").build();
    links.link().set(renamed).execute().await.map_err(failed)?;
    address(&links, "eth0", own).await?;
    up(&links, "eth0").await?;
    let route = RouteMessageBuilder::<Ipv4Addr>::new().gateway(GATEWAY).build();
    links.route().add(route).execute().await.map_err(failed)
}

async fn up(links: &Handle, name: &str) -> io::Result<()> {
    let message = LinkUnspec::new_with_index(index(name)?).up().build();
    links.link().set(message).execute().await.map_err(failed)
}

async fn address(links: &Handle, name: &str, address: Ipv4Addr) -> io::Result<()> {
    let request = links.address().add(index(name)?, IpAddr::V4(address), PREFIX).replace();
    request.execute().await.map_err(failed)
}

pub fn end(folder: &Path) {
    let record = folder.join(RECORD);
    if let Some(holder) = load::<ProcessId>(&record) {
        holder.kill_group();
    }
    let _ = std::fs::remove_file(record);
}

#[cfg(test)]
mod tests {
    use super::super::held::tests::sleeper;
    use super::*;

    #[test]
    fn what_connects_pods_is_tried_whole() {
        // As root, in a network that goes with its thread; the machine's has no such bridge.
        let tried = std::thread::spawn(|| {
            if nix::sched::unshare(CloneFlags::CLONE_NEWNET).is_err() {
                return;
            }
            try_here().unwrap();
            for name in [BRIDGE, "near", "far"] {
                index(name).unwrap();
            }
        });
        tried.join().unwrap();
    }

    #[tokio::test]
    async fn a_port_of_a_pod_that_has_ended_is_nobodys() {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mut pod, held) = sleeper();
        // It has no network of its own: the machine's is the pod's.
        connect_within(held.process, port).await.unwrap();
        pod.kill().unwrap();
        pod.wait().unwrap();
        assert!(connect_within(held.process, port).await.is_err());
    }
}
