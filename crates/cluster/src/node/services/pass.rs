//! Passing connections and datagrams on: what Services, node ports and host ports have in common.
//!
//! Where to is asked anew for each connection, so that an endpoint that is no longer ready gets none; one that does not
//! answer is skipped. Datagrams have no connections: those of one client go to one endpoint, and answers go back, until
//! both sides have been silent for a while.

use crate::node::network::Network;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// Connections that are passed on at once, over all ports; more wait.
const MOST_CONNECTIONS: usize = 4096;
/// Conversations of datagrams at once; what would begin one more is lost. Each lasts for as long as its silence may be, so
/// they must not take the place of connections.
const MOST_TALKS: usize = 4096;
/// How long an endpoint may take to accept a connection before the next one is tried.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// The pause after a connection could not be accepted: out of file descriptors, for one, until others have ended.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a conversation of datagrams may be silent before it is forgotten, as connection tracking has it.
const SILENCE: Duration = Duration::from_secs(30);
/// The largest datagram there is.
const DATAGRAM: usize = 65_536;
/// Clients whose endpoint is remembered at once for one port.
const MOST_REMEMBERED: usize = 4096;

/// Where one port leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    pub endpoints: Vec<SocketAddr>,
    /// How long a client keeps its endpoint (`sessionAffinity: ClientIP`).
    pub affinity: Option<Duration>,
}

/// Says where a port leads now.
pub type Targets = Arc<dyn Fn() -> Route + Send + Sync>;

/// What a port needs besides its socket.
#[derive(Clone)]
pub struct Passing {
    pub network: Arc<dyn Network>,
    pub room: Room,
    pub targets: Targets,
}

/// A permit for each connection, and for each conversation.
#[derive(Clone, Debug)]
pub struct Room {
    connections: Arc<Semaphore>,
    talks: Arc<Semaphore>,
}

/// Room for as much as a node passes on at once.
pub fn room() -> Room {
    Room {
        connections: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
        talks: Arc::new(Semaphore::new(MOST_TALKS)),
    }
}

/// Passes connections on until it is dropped: nothing but that ends it.
pub async fn connections(listener: TcpListener, passing: Passing) {
    let choice: Arc<Mutex<Choice>> = Arc::default();
    loop {
        let (mut client, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // The semaphore is never closed; without a permit the connection is merely not counted.
        let permit = passing.room.connections.clone().acquire_owned().await.ok();
        let route = (passing.targets)();
        let order = choice.lock().order(&route, from.ip(), Instant::now());
        let (network, choice) = (passing.network.clone(), choice.clone());
        tokio::spawn(async move {
            let _permit = permit;
            if let Some((mut server, endpoint)) = reach(network.as_ref(), &order).await {
                if route.affinity.is_some() {
                    choice.lock().remember(&route, from.ip(), endpoint, Instant::now());
                }
                // Either side may end; that is how connections go.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}

/// Connects to the first endpoint that answers.
async fn reach(network: &dyn Network, endpoints: &[SocketAddr]) -> Option<(TcpStream, SocketAddr)> {
    for endpoint in endpoints {
        if let Ok(Ok(stream)) = tokio::time::timeout(CONNECT_PATIENCE, network.connect(*endpoint)).await {
            return Some((stream, *endpoint));
        }
    }
    None
}

/// Passes datagrams on until it is dropped.
pub async fn datagrams(socket: UdpSocket, passing: Passing) {
    let socket = Arc::new(socket);
    let mut talks: HashMap<SocketAddr, Talk> = HashMap::new();
    let mut choice = Choice::default();
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let (count, client) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                // An answer that its client no longer wanted, for one.
                tracing::debug!(%error, "a datagram could not be received");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let route = (passing.targets)();
        let current = talks.get(&client).filter(|talk| talk.goes_on(&route));
        if current.is_none() {
            talks.retain(|_, talk| !talk.answers.is_finished());
            talks.remove(&client);
            // Too many talk already: the client sends again, as whoever speaks in datagrams must.
            let Ok(permit) = passing.room.talks.clone().try_acquire_owned() else {
                continue;
            };
            let order = choice.order(&route, client.ip(), Instant::now());
            let Some(endpoint) = order.first().copied() else {
                continue;
            };
            choice.remember(&route, client.ip(), endpoint, Instant::now());
            match Talk::begin(passing.network.as_ref(), endpoint, (socket.clone(), client), permit).await {
                Ok(talk) => talks.insert(client, talk),
                Err(error) => {
                    tracing::debug!(%endpoint, %error, "a datagram could not be passed on");
                    continue;
                }
            };
        }
        if let Some(talk) = talks.get(&client) {
            talk.heard.store(true, Ordering::Relaxed);
            if talk.to.send(&buffer[..count]).await.is_err() {
                // Nobody listens there any more; the next datagram goes to the next endpoint.
                talks.remove(&client);
            }
        }
    }
}

/// One client's datagrams and their answers.
struct Talk {
    endpoint: SocketAddr,
    to: Arc<UdpSocket>,
    /// Whether the client has spoken since the last look.
    heard: Arc<AtomicBool>,
    answers: AbortOnDropHandle<()>,
}

impl Talk {
    async fn begin(
        network: &dyn Network,
        endpoint: SocketAddr,
        (back, client): (Arc<UdpSocket>, SocketAddr),
        permit: OwnedSemaphorePermit,
    ) -> io::Result<Talk> {
        let to = Arc::new(network.datagrams_to(endpoint).await?);
        let heard = Arc::new(AtomicBool::new(true));
        let (from, spoken) = (to.clone(), heard.clone());
        let answers = tokio::spawn(async move {
            let _permit = permit;
            let mut buffer = vec![0; DATAGRAM];
            loop {
                match tokio::time::timeout(SILENCE, from.recv(&mut buffer)).await {
                    // A client that is gone does not end it: another may come from the same port.
                    Ok(Ok(count)) => drop(back.send_to(&buffer[..count], client).await),
                    Ok(Err(_)) => return,
                    Err(_) if spoken.swap(false, Ordering::Relaxed) => {}
                    Err(_) => return,
                }
            }
        });
        Ok(Talk {
            endpoint,
            to,
            heard,
            answers: AbortOnDropHandle::new(answers),
        })
    }

    /// Whether the next datagram may go the same way.
    fn goes_on(&self, route: &Route) -> bool {
        !self.answers.is_finished() && route.endpoints.contains(&self.endpoint)
    }
}

/// Whose turn it is, and who had which endpoint.
#[derive(Default)]
struct Choice {
    turn: usize,
    remembered: HashMap<IpAddr, (SocketAddr, Instant)>,
}

impl Choice {
    /// The endpoints in the order in which they should be tried for a client.
    fn order(&mut self, route: &Route, client: IpAddr, now: Instant) -> Vec<SocketAddr> {
        let mut order = route.endpoints.clone();
        if order.is_empty() {
            return order;
        }
        let kept = route.affinity.and_then(|patience| {
            let (endpoint, since) = self.remembered.get(&client)?;
            let kept = now.duration_since(*since) < patience;
            kept.then(|| order.iter().position(|candidate| candidate == endpoint))
                .flatten()
        });
        let first = kept.unwrap_or_else(|| {
            self.turn = self.turn.wrapping_add(1);
            self.turn % order.len()
        });
        order.rotate_left(first);
        order
    }

    fn remember(&mut self, route: &Route, client: IpAddr, endpoint: SocketAddr, now: Instant) {
        let Some(patience) = route.affinity else { return };
        if self.remembered.len() >= MOST_REMEMBERED {
            self.remembered
                .retain(|_, (_, since)| now.duration_since(*since) < patience);
        }
        if self.remembered.len() < MOST_REMEMBERED || self.remembered.contains_key(&client) {
            self.remembered.insert(client, (endpoint, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::network::Loopback;
    use crate::node::network::range::Range;
    use std::net::Ipv4Addr;

    fn passing(endpoints: Vec<SocketAddr>) -> Passing {
        let route = Route {
            endpoints,
            affinity: None,
        };
        Passing {
            network: Arc::new(Loopback::new(Range::Own)),
            room: room(),
            targets: Arc::new(move || route.clone()),
        }
    }

    #[tokio::test]
    async fn datagrams_of_a_client_go_to_one_endpoint_and_answers_come_back() {
        let echo = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let end = echo.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buffer = [0; 64];
            loop {
                let (count, from) = echo.recv_from(&mut buffer).await.unwrap();
                let answer = [b"echo ", &buffer[..count]].concat();
                echo.send_to(&answer, from).await.unwrap();
            }
        });
        let front = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = front.local_addr().unwrap();
        tokio::spawn(datagrams(front, passing(vec![end])));
        for word in ["one", "two"] {
            let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            client.connect(address).await.unwrap();
            for _ in 0..2 {
                client.send(word.as_bytes()).await.unwrap();
                let mut buffer = [0; 64];
                let count = client.recv(&mut buffer).await.unwrap();
                assert_eq!(buffer[..count], *format!("echo {word}").as_bytes());
            }
        }
    }

    #[tokio::test]
    async fn connections_find_room_however_many_talk_in_datagrams() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let front = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = front.local_addr().unwrap();
        let mut passing = passing(vec![server.local_addr().unwrap()]);
        passing.room.talks = Arc::new(Semaphore::new(0));
        tokio::spawn(connections(front, passing));
        let _client = TcpStream::connect(address).await.unwrap();
        let passed_on = tokio::time::timeout(Duration::from_secs(10), server.accept()).await;
        passed_on.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_datagram_after_a_refused_one_goes_to_the_next_endpoint() {
        let dead = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .unwrap()
            .local_addr()
            .unwrap();
        let alive = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let ends = vec![dead, alive.local_addr().unwrap()];
        let front = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = front.local_addr().unwrap();
        tokio::spawn(datagrams(front, passing(ends)));
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        client.connect(address).await.unwrap();
        let mut buffer = [0; 8];
        // The kernel tells of a refusal with the next datagram, so a few may be lost; one arrives.
        let arrived = async {
            loop {
                client.send(b"hello").await.unwrap();
                let wait = Duration::from_millis(20);
                if let Ok(received) = tokio::time::timeout(wait, alive.recv(&mut buffer)).await {
                    return received.unwrap();
                }
            }
        };
        let count = tokio::time::timeout(Duration::from_secs(10), arrived).await.unwrap();
        assert_eq!(&buffer[..count], b"hello");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_keeps_its_endpoint_for_as_long_as_the_service_says() {
        let end = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut route = Route {
            endpoints: vec![end(1), end(2), end(3)],
            affinity: Some(Duration::from_secs(60)),
        };
        let client = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 9));
        let mut choice = Choice::default();
        let first = choice.order(&route, client, Instant::now())[0];
        choice.remember(&route, client, first, Instant::now());
        tokio::time::advance(Duration::from_secs(59)).await;
        for _ in 0..3 {
            assert_eq!(choice.order(&route, client, Instant::now())[0], first);
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_ne!(
            choice.order(&route, client, Instant::now())[0],
            first,
            "its time is over"
        );
        choice.remember(&route, client, first, Instant::now());
        route.endpoints.retain(|endpoint| *endpoint != first);
        assert_ne!(choice.order(&route, client, Instant::now())[0], first, "it is gone");
        route.affinity = None;
        let two: Vec<_> = (0..2)
            .map(|_| choice.order(&route, client, Instant::now())[0])
            .collect();
        assert_ne!(two[0], two[1], "without it they take turns");
    }
}
