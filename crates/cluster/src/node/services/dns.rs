//! The cluster's DNS: names of Services, of their endpoints, and of pods by address.
//!
//! It answers from the table alone. The cluster has no way out, so a name outside of it does not exist here.

use super::Table;
use crate::node::network::Network;
use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use parking_lot::RwLock;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long answers may be kept: short, because endpoints come and go.
const SECONDS_TO_LIVE: u32 = 5;
/// Names that stand for names, one after the other: as many as resolvers usually follow.
const MOST_ALIASES: usize = 8;
/// The largest question that is read.
const LARGEST: usize = 4096;

/// Answers questions on the pods' side of the network until it is dropped.
pub async fn serve(network: &dyn Network, table: Arc<RwLock<Table>>) -> std::io::Result<()> {
    let Some(address) = network.gateway() else {
        return std::future::pending().await;
    };
    let datagrams = table.clone();
    let by_datagram = network.inside(Box::pin(async move {
        let socket = tokio::net::UdpSocket::bind((address, 53)).await?;
        let mut buffer = vec![0; LARGEST];
        loop {
            let (count, from) = socket.recv_from(&mut buffer).await?;
            let reply = answer(&datagrams.read(), &buffer[..count]);
            if let Some(reply) = reply {
                // A client that is gone asks again or not at all.
                let _ = socket.send_to(&reply, from).await;
            }
        }
    }));
    let by_stream = network.inside(Box::pin(async move {
        let listener = tokio::net::TcpListener::bind((address, 53)).await?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            let table = table.clone();
            tokio::spawn(async move {
                let length = stream.read_u16().await?;
                let mut question = vec![0; usize::from(length).min(LARGEST)];
                stream.read_exact(&mut question).await?;
                let reply = answer(&table.read(), &question).unwrap_or_default();
                stream.write_u16(u16::try_from(reply.len()).unwrap_or(0)).await?;
                stream.write_all(&reply).await
            });
        }
    }));
    tokio::select! {
        result = by_datagram => result,
        result = by_stream => result,
    }
}

/// What a name stands for.
enum Meaning {
    Addresses(Vec<Ipv4Addr>),
    /// Ports and the names of the hosts that serve them.
    Servers(Vec<(u16, String)>),
    /// Another name (`ExternalName`).
    Alias(String),
    Nothing,
}

/// The answer to one question, or nothing for what is none.
pub fn answer(table: &Table, question: &[u8]) -> Option<Vec<u8>> {
    let request = Message::from_vec(question).ok()?;
    if request.metadata.message_type != MessageType::Query {
        return None;
    }
    let mut reply = Message::response(request.metadata.id, OpCode::Query);
    reply.metadata.recursion_desired = request.metadata.recursion_desired;
    reply.metadata.recursion_available = true;
    reply.metadata.authoritative = true;
    let query = request.queries.first()?.clone();
    let mut asked = query.name().clone();
    let mut meaning = meaning_of(table, &asked);
    let mut aliases = 0;
    while let Meaning::Alias(to) = &meaning {
        let Ok(target) = Name::from_ascii(to) else { break };
        let target = absolute(target);
        let data = RData::CNAME(CNAME(target.clone()));
        reply.add_answer(Record::from_rdata(asked, SECONDS_TO_LIVE, data));
        aliases += 1;
        asked = target;
        // Whoever asks follows the rest, or finds that it is a circle.
        if query.query_type() == RecordType::CNAME || aliases == MOST_ALIASES {
            meaning = Meaning::Addresses(Vec::new());
            break;
        }
        meaning = match meaning_of(table, &asked) {
            // The name itself exists, wherever it leads.
            Meaning::Nothing => Meaning::Addresses(Vec::new()),
            meaning => meaning,
        };
    }
    match (meaning, query.query_type()) {
        (Meaning::Addresses(addresses), RecordType::A | RecordType::ANY) => {
            for address in addresses {
                let record = Record::from_rdata(asked.clone(), SECONDS_TO_LIVE, RData::A(A(address)));
                reply.add_answer(record);
            }
        }
        (Meaning::Servers(servers), RecordType::SRV | RecordType::ANY) => {
            for (port, host) in servers {
                let Ok(target) = Name::from_ascii(host) else { continue };
                let data = RData::SRV(SRV::new(0, 100, port, target));
                reply.add_answer(Record::from_rdata(asked.clone(), SECONDS_TO_LIVE, data));
            }
        }
        // The name exists, with nothing of the kind that was asked for.
        (Meaning::Addresses(_) | Meaning::Servers(_) | Meaning::Alias(_), _) => {}
        (Meaning::Nothing, _) => reply.metadata.response_code = ResponseCode::NXDomain,
    }
    reply.add_query(query);
    reply.to_vec().ok()
}

fn absolute(mut name: Name) -> Name {
    name.set_fqdn(true);
    name
}

fn meaning_of(table: &Table, name: &Name) -> Meaning {
    let name = name.to_lowercase().to_ascii();
    meaning(table, name.trim_end_matches('.'))
}

fn meaning(table: &Table, name: &str) -> Meaning {
    let Some(inside) = name.strip_suffix(".cluster.local") else {
        return Meaning::Nothing;
    };
    let parts: Vec<&str> = inside.split('.').collect();
    match parts.as_slice() {
        [service, namespace, "svc"] => service_addresses(table, namespace, service),
        [host, service, namespace, "svc"] if !host.starts_with('_') => {
            let found = table.endpoints(namespace, service).into_iter();
            let named = found.filter(|endpoint| {
                endpoint.hostname.as_deref() == Some(host) || endpoint.address.to_string().replace('.', "-") == *host
            });
            some(named.filter_map(|endpoint| v4(endpoint.address)).collect())
        }
        [port, _protocol, service, namespace, "svc"] => servers(table, port, namespace, service),
        [dashed, _namespace, "pod"] => some(dashed.replace('-', ".").parse().into_iter().collect()),
        _ => Meaning::Nothing,
    }
}

fn some(addresses: Vec<Ipv4Addr>) -> Meaning {
    if addresses.is_empty() {
        Meaning::Nothing
    } else {
        Meaning::Addresses(addresses)
    }
}

fn v4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

fn service_addresses(table: &Table, namespace: &str, service: &str) -> Meaning {
    let Some(found) = table.service(namespace, service) else {
        return Meaning::Nothing;
    };
    let spec = found.spec.as_ref();
    let external = spec.filter(|spec| spec.type_.as_deref() == Some("ExternalName"));
    if let Some(name) = external.and_then(|spec| spec.external_name.clone()) {
        return Meaning::Alias(name);
    }
    let cluster = spec.and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
    match cluster.parse() {
        Ok(address) => Meaning::Addresses(vec![address]),
        Err(_) => {
            let endpoints = table.endpoints(namespace, service).into_iter();
            Meaning::Addresses(endpoints.filter_map(|endpoint| v4(endpoint.address)).collect())
        }
    }
}

fn servers(table: &Table, port: &str, namespace: &str, service: &str) -> Meaning {
    let (Some(found), Some(port)) = (table.service(namespace, service), port.strip_prefix('_')) else {
        return Meaning::Nothing;
    };
    let spec = found.spec.clone().unwrap_or_default();
    let mut ports = spec.ports.iter().flatten();
    let Some(wanted) = ports.find(|candidate| candidate.name.as_deref() == Some(port)) else {
        return Meaning::Nothing;
    };
    let number = u16::try_from(wanted.port).unwrap_or(0);
    let base = format!("{service}.{namespace}.svc.cluster.local.");
    if spec.cluster_ip.as_deref() != Some("None") {
        return Meaning::Servers(vec![(number, base)]);
    }
    let endpoints = table.endpoints(namespace, service).into_iter();
    Meaning::Servers(
        endpoints
            .map(|endpoint| {
                let host = endpoint
                    .hostname
                    .unwrap_or_else(|| endpoint.address.to_string().replace('.', "-"));
                (number, format!("{host}.{base}"))
            })
            .collect(),
    )
}
