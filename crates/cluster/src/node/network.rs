//! What connects pods: the place where a network driver attaches.
//!
//! Where the user may (root, also of a user namespace), every pod has a network namespace and an address on a bridge.
//! The bridge is in a namespace of the cluster's own, without a way out: no packet for a pod can leave by the machine's
//! routes.
//! Elsewhere pods share the machine's network, with one loopback address each. Both are this one trait; an implementation
//! that calls CNI plugins would be a third: it holds a namespace as the bridge does, and has a plugin connect it.

mod addresses;
pub(super) mod bridge;
mod held;
mod loopback;
pub mod range;
mod spares;

use super::process::spec::{Processes, SandboxRecord};
use super::process::users::Standing;
use super::registration::Ground;
use async_trait::async_trait;
use bridge::Bridge;
use futures::future::BoxFuture;
use held::Held;
pub use loopback::Loopback;
use range::Range;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use tokio::net::{TcpStream, UdpSocket};
use tokio_util::sync::CancellationToken;

/// A pod that is connected.
pub struct Attached {
    pub address: IpAddr,
    /// The process that holds the pod's namespaces, if it has any; to be let go when it is written down.
    pub holder: Option<Held>,
}

/// What connects pods. Every call may be repeated after a crash of the agent: the runtime writes down which pod has
/// which address, says so again when it finds the pod, and gives the address back when nobody uses it any more.
///
/// A body that is given here is right where the machine reaches pods as it reaches any other address.
#[async_trait]
pub trait Network: Send + Sync + 'static {
    /// What pods stand on, where this process has these rights.
    fn ground(&self, standing: Standing) -> Ground;

    /// What else is to be said of it, in a sentence for people.
    fn note(&self) -> &'static str {
        ""
    }

    /// The range of its pods' addresses, as a Node object says it, if it is this node's alone.
    fn pod_range(&self) -> Option<String> {
        None
    }

    /// Makes what the containers of a pod share, and connects it with an address that no other pod has.
    async fn attach(&self, hostname: &str, processes: Processes) -> io::Result<Attached>;

    /// Makes what a pod on the machine's own network shares besides that (`hostNetwork`).
    async fn attach_to_machine(&self, address: IpAddr, processes: Processes) -> io::Result<Attached>;

    /// Takes note of a pod that was found connected, once or several times.
    fn adopt(&self, address: IpAddr);

    /// Lets another pod have an address that nobody uses any more. One that is not of this network stays whose it is.
    fn give_back(&self, address: IpAddr);

    /// Disconnects a pod that was not written down.
    fn detach(&self, attached: Attached) {
        if let Some(holder) = attached.holder {
            holder.end();
        }
        self.give_back(attached.address);
    }

    /// Makes what pods will need before they come, until `stop`; then it ends what no pod has got.
    async fn keep_ready(&self, _stop: &CancellationToken) {}

    /// Whether an address is one of pods, which nobody outside reaches.
    fn owns(&self, _address: IpAddr) -> bool {
        false
    }

    /// Connects to a pod, or to any other address, from where it can be reached.
    async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(to).await
    }

    /// Connects to a port of a pod from within it, where it has a network of its own.
    async fn connect_to_pod(&self, pod: &SandboxRecord, port: u16) -> io::Result<TcpStream> {
        self.connect(pod.at(port)?).await
    }

    /// A socket whose datagrams go to a pod, or to any other address, from where it can be reached.
    async fn datagrams_to(&self, to: SocketAddr) -> io::Result<UdpSocket> {
        datagrams(to).await
    }

    /// The address at which pods find the cluster itself: its DNS, and the way to Services. None where pods share the
    /// machine's network: that has no addresses of Services, and its ports are the machine's.
    fn gateway(&self) -> Option<Ipv4Addr> {
        None
    }

    /// Makes the address of a Service one that pods reach, at what listens `inside`.
    async fn serve_address(&self, _address: Ipv4Addr) -> io::Result<()> {
        Ok(())
    }

    /// Runs something where pods and Services are; dropping the wait ends it.
    async fn inside(&self, work: BoxFuture<'static, io::Result<()>>) -> io::Result<()> {
        work.await
    }
}

/// The best network that this user may have. `folder` keeps what must be found again.
pub async fn open(own: &Path, folder: &Path, range: Range) -> Arc<dyn Network> {
    let network: Arc<dyn Network> = match Bridge::open(own, folder, range).await {
        Ok(bridge) => Arc::new(bridge),
        Err(error) => {
            tracing::info!(%error, "pods share the machine's network: namespaces are not permitted");
            Arc::new(Loopback::new(range))
        }
    };
    // Until the agent has adopted the pods that run, nobody else may get their addresses.
    let recorded = sandboxes(folder).flat_map(|sandbox| sandbox.addresses);
    recorded.for_each(|address| network.adopt(address));
    network
}

/// A socket of this thread's network whose datagrams go to an address.
async fn datagrams(to: SocketAddr) -> io::Result<UdpSocket> {
    let any = match to {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(to).await?;
    Ok(socket)
}

/// The sandboxes of pods that are written down in a folder and still have their addresses.
fn sandboxes(folder: &Path) -> impl Iterator<Item = SandboxRecord> {
    let pods = std::fs::read_dir(folder.join("pods")).into_iter().flatten().flatten();
    pods.filter_map(|pod| SandboxRecord::attached(&pod.path().join("sandbox.json")))
}

/// Ends what holds the network that `folder` describes. Needs no agent: it is for what a kill -9 left, too.
pub fn end(folder: &Path) {
    bridge::end(folder);
}
