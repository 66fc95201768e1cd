//! The network of pods: the place where a network driver attaches.
//!
//! Where the user may (root, also of a user namespace), every pod has a network namespace and an address on a bridge. The bridge is in a
//! namespace of the cluster's own, without a way out: no packet for a pod can leave by the machine's routes.
//! Elsewhere pods share the machine's network, with one loopback address each.

mod bridge;
mod held;
mod spares;

use super::process::spec::{Processes, SandboxRecord};
use super::process::users::{Standing, Users};
use super::registration::Ground;
use bridge::Bridge;
use held::Held;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use tokio::net::{TcpStream, UdpSocket};

/// How pods are connected.
pub enum Network {
    /// Each pod has a namespace and an address on the bridge.
    Bridge(Bridge),
    /// All pods are on the machine's own network.
    Loopback(Addresses),
}

/// A pod that is connected.
pub struct Attached {
    pub address: IpAddr,
    /// The process that holds the pod's namespaces, if it has any; to be let go when it is written down.
    pub holder: Option<Held>,
}

/// Addresses that are given to pods.
pub struct Addresses {
    taken: Mutex<(u32, BTreeSet<u32>)>,
    first: u32,
    count: u32,
}

impl Addresses {
    fn new(first: Ipv4Addr, count: u32) -> Addresses {
        Addresses {
            taken: Mutex::default(),
            first: first.to_bits(),
            count,
        }
    }

    /// An address that no pod has. They are given in turn, so that one is not used again at once.
    pub(crate) fn take(&self) -> io::Result<Ipv4Addr> {
        let mut guard = self.taken.lock();
        let (next, taken) = &mut *guard;
        for _ in 0..self.count {
            let offset = *next;
            *next = (*next + 1) % self.count;
            if taken.insert(offset) {
                return Ok(Ipv4Addr::from_bits(self.first + offset));
            }
        }
        Err(io::Error::other("every address for pods is taken"))
    }

    /// Marks an address of a pod that was found running.
    fn keep(&self, address: IpAddr) {
        if let Some(offset) = self.offset(address) {
            let mut guard = self.taken.lock();
            guard.1.insert(offset);
            guard.0 = guard.0.max((offset + 1) % self.count);
        }
    }

    pub(crate) fn give_back(&self, address: IpAddr) {
        if let Some(offset) = self.offset(address) {
            self.taken.lock().1.remove(&offset);
        }
    }

    fn offset(&self, address: IpAddr) -> Option<u32> {
        let IpAddr::V4(address) = address else { return None };
        address
            .to_bits()
            .checked_sub(self.first)
            .filter(|offset| *offset < self.count)
    }
}

impl Network {
    /// The best network that this user may have. `folder` keeps what must be found again.
    pub async fn open(own: &Path, folder: &Path) -> Network {
        let network = match Bridge::open(own, folder).await {
            Ok(bridge) => Network::Bridge(bridge),
            Err(error) => {
                tracing::info!(%error, "pods share the machine's network: namespaces are not permitted");
                Network::shared()
            }
        };
        // Until the agent has adopted the pods that run, nobody else may get their addresses.
        let recorded = sandboxes(folder).flat_map(|sandbox| sandbox.addresses);
        recorded.for_each(|address| network.adopt(address));
        network
    }

    /// The machine's own network, which everybody may have.
    pub fn shared() -> Network {
        Network::Loopback(Addresses::new(Ipv4Addr::new(127, 18, 0, 2), 0xfff0))
    }

    /// What pods stand on, where this process has these rights.
    pub fn ground(&self, standing: Standing) -> Ground {
        match (self, standing) {
            (Network::Bridge(_), Standing::Mapped(Users::Own)) => Ground::UserNamespace,
            (Network::Bridge(_), Standing::Mapped(Users::Range)) => Ground::UserRange,
            (Network::Bridge(_), Standing::Root | Standing::Ordinary) => Ground::Namespaces,
            (Network::Loopback(_), _) => Ground::Machine,
        }
    }

    /// Connects a pod.
    pub async fn attach(&self, hostname: &str, processes: Processes) -> io::Result<Attached> {
        match self {
            Network::Bridge(bridge) => bridge.attach(hostname, processes).await,
            Network::Loopback(addresses) => Ok(Attached {
                address: IpAddr::V4(addresses.take()?),
                holder: None,
            }),
        }
    }

    /// Makes what a pod on the machine's own network shares besides that (`hostNetwork`).
    pub async fn attach_to_machine(&self, address: IpAddr, processes: Processes) -> io::Result<Attached> {
        let holder = match self {
            Network::Bridge(bridge) => Some(bridge.hold_without_network(processes).await?),
            Network::Loopback(_) => None,
        };
        Ok(Attached { address, holder })
    }

    /// Takes note of a pod that was found connected.
    pub fn adopt(&self, address: IpAddr) {
        match self {
            Network::Bridge(bridge) => bridge.addresses.keep(address),
            Network::Loopback(addresses) => addresses.keep(address),
        }
    }

    /// Disconnects a pod.
    pub fn detach(&self, attached: Attached) {
        if let Some(holder) = attached.holder {
            holder.end();
        }
        self.give_back(attached.address);
    }

    /// Lets another pod have an address that nobody uses any more.
    pub fn give_back(&self, address: IpAddr) {
        match self {
            Network::Bridge(bridge) => bridge.addresses.give_back(address),
            Network::Loopback(addresses) => addresses.give_back(address),
        }
    }

    /// Connects to a pod, or to any other address, from where it can be reached.
    pub async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        match self {
            Network::Bridge(bridge) if bridge.owns(to.ip()) => bridge.inside(TcpStream::connect(to)).await?,
            Network::Bridge(bridge) => bridge.outside(TcpStream::connect(to)).await?,
            Network::Loopback(_) => TcpStream::connect(to).await,
        }
    }

    /// A socket whose datagrams go to a pod, or to any other address, from where it can be reached.
    pub async fn datagrams_to(&self, to: SocketAddr) -> io::Result<UdpSocket> {
        let open = async move {
            let any = match to {
                SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            };
            let socket = UdpSocket::bind((any, 0)).await?;
            socket.connect(to).await?;
            Ok(socket)
        };
        match self {
            Network::Bridge(bridge) if bridge.owns(to.ip()) => bridge.inside(open).await?,
            Network::Bridge(bridge) => bridge.outside(open).await?,
            Network::Loopback(_) => open.await,
        }
    }

    /// Whether an address is one of its pods', which nobody outside reaches.
    pub fn owns(&self, address: IpAddr) -> bool {
        match self {
            Network::Bridge(bridge) => bridge.owns(address),
            Network::Loopback(_) => false,
        }
    }

    /// Runs something where pods and Services are, if that is another place than here.
    pub async fn inside<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> io::Result<T> {
        match self {
            Network::Bridge(bridge) => bridge.inside(work).await,
            Network::Loopback(_) => Ok(work.await),
        }
    }

    /// Makes a range of Service addresses reachable for pods.
    pub async fn serve_range(&self, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        match self {
            Network::Bridge(bridge) => bridge.serve_range(address, prefix).await,
            Network::Loopback(_) => Ok(()),
        }
    }

    /// Where pods find the cluster's DNS, if there is one.
    pub fn resolver(&self) -> Option<Ipv4Addr> {
        match self {
            Network::Bridge(_) => Some(bridge::GATEWAY),
            Network::Loopback(_) => None,
        }
    }
}

/// The sandboxes of pods that are written down in a folder and still have their addresses.
fn sandboxes(folder: &Path) -> impl Iterator<Item = SandboxRecord> {
    let pods = std::fs::read_dir(folder.join("pods")).into_iter().flatten().flatten();
    pods.filter_map(|pod| SandboxRecord::attached(&pod.path().join("sandbox.json")))
}

/// Ends what holds the network that `folder` describes.
pub fn end(folder: &Path) {
    bridge::end(folder);
}
