//! Ways to a pod from outside and inside: datagrams through Services, host ports, and what a filter leaves of a pod's
//! own ways to the kernel.

use crate::binary::{PATIENCE, Up, eventually, kubectl};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// A server that answers datagrams and connections with its name, on every node, at a host port.
fn daemon(port: u16) -> String {
    format!(
        "apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: door}}
spec:
  selector: {{matchLabels: {{app: door}}}}
  template:
    metadata: {{labels: {{app: door}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: door
        image: registry.k8s.io/e2e-test-images/agnhost:2.59
        args: [netexec, --http-port=8080, --udp-port=8081]
        ports:
        - {{containerPort: 8080, hostPort: {port}}}
        - {{containerPort: 8081, hostPort: {port}, protocol: UDP}}
        readinessProbe: {{httpGet: {{path: /healthz, port: 8080}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: door}}
spec:
  type: NodePort
  selector: {{app: door}}
  ports: [{{name: ask, port: 90, targetPort: 8081, protocol: UDP}}, {{name: web, port: 90, targetPort: 8080}}]
"
    )
}

/// A port that was free a moment ago at every address of the machine.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// What a server says to a datagram.
fn ask(address: &str, question: &str) -> Result<String, String> {
    let socket = UdpSocket::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let patience = Some(Duration::from_secs(2));
    socket.set_read_timeout(patience).map_err(|error| error.to_string())?;
    socket.connect(address).map_err(|error| error.to_string())?;
    socket.send(question.as_bytes()).map_err(|error| error.to_string())?;
    let mut buffer = [0; 512];
    let count = socket.recv(&mut buffer).map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&buffer[..count]).into_owned())
}

/// What a web server says to a request.
fn get(address: &str, path: &str) -> Result<String, String> {
    let mut stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .map_err(|error| error.to_string())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(|error| error.to_string())?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    body.ok_or(answer)
}

#[test]
fn datagrams_and_host_ports_reach_the_pod_of_the_node_that_was_asked() {
    if kubectl().is_none() {
        return;
    }
    let Some(up) = Up::whole(&["--ephemeral", "--nodes", "2"]) else {
        return;
    };
    let host = free_port();
    up.apply(&daemon(host));
    up.run(&["rollout", "status", "daemonset/door", "--timeout=60s"]);
    let of_node = |node: &str, path: &str| {
        let selector = format!("--field-selector=spec.nodeName={node}");
        up.run(&[
            "get",
            "pods",
            "-l",
            "app=door",
            &selector,
            "-o",
            &format!("jsonpath={path}"),
        ])
    };
    for node in ["node-0", "node-1"] {
        let address = format!("{}:{host}", of_node(node, "{.items[0].status.hostIP}"));
        let name = of_node(node, "{.items[0].metadata.name}");
        assert_eq!(get(&address, "/hostname").as_deref(), Ok(name.as_str()), "{address}");
        assert_eq!(ask(&address, "hostname").as_deref(), Ok(name.as_str()), "{address}");
    }
    let port = |index: u8| {
        let path = format!("jsonpath={{.spec.ports[{index}].nodePort}}");
        up.run(&["get", "service", "door", "-o", &path])
    };
    eventually("a node port takes datagrams", PATIENCE, || {
        let said = ask(&format!("127.0.0.1:{}", port(0)), "echo hello")?;
        (said == "hello").then_some(()).ok_or(said)
    });
    // From pod to Service, by its name and number in both protocols.
    let pod = of_node("node-0", "{.items[0].metadata.name}");
    let inside = |protocol: &str| {
        let dial = format!("/dial?host=door&port=90&protocol={protocol}&request=hostname&tries=6");
        get(&format!("127.0.0.1:{host}"), &dial)
    };
    let bridged = !up
        .run(&[
            "get",
            "node",
            "node-0",
            "-o",
            "jsonpath={.status.conditions[?(@.type=='Ready')].message}",
        ])
        .contains("share the machine's network");
    if bridged {
        for protocol in ["udp", "http"] {
            eventually("a Service answers in each protocol", PATIENCE, || {
                let said = inside(protocol)?;
                (said.contains("door-") && !said.contains("errors"))
                    .then_some(())
                    .ok_or(said)
            });
        }
    }
    up.run(&["delete", "daemonset", "door", "--wait=true", "--cascade=foreground"]);
    eventually("the port is free again", PATIENCE, || {
        TcpListener::bind(("127.0.0.1", host)).map_err(|error| format!("{pod}: {error}"))
    });
}

#[test]
fn a_host_port_that_is_taken_holds_the_pod_up_and_says_so() {
    if kubectl().is_none() {
        return;
    }
    let Some(up) = Up::whole(&["--ephemeral"]) else { return };
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    up.apply(&format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: late}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{{name: c, image: stead/hello, ports: [{{containerPort: 8080, hostPort: {port}}}]}}]
"
    ));
    eventually("it says what it waits for", PATIENCE, || {
        let events = up.run(&["events", "--for", "pod/late"]);
        let told = events.contains("FailedCreatePodSandBox") && events.contains(&format!("127.0.0.1:{port}"));
        told.then_some(()).ok_or(events)
    });
    drop(taken);
    up.run(&["wait", "pod/late", "--for=condition=Ready", "--timeout=60s"]);
    eventually("the program answers there", PATIENCE, || {
        let said = get(&format!("127.0.0.1:{port}"), "/")?;
        said.contains("late").then_some(()).ok_or(said)
    });
}

#[test]
fn the_usual_filter_refuses_what_containers_have_no_business_with() {
    if kubectl().is_none() {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        return stead_test::skip::skipped("a filter takes the rights of root");
    }
    let Some(up) = Up::whole(&["--ephemeral"]) else { return };
    let pod = |name: &str, context: &str| {
        format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  securityContext: {{{context}}}
  containers:
  - name: c
    image: busybox
    command: [sh, -c, 'unshare -U true && echo namespaces; grep Seccomp: /proc/self/status']
---
"
        )
    };
    let usual = "seccompProfile: {type: RuntimeDefault}";
    up.apply(&pod("free", "seccompProfile: {type: Unconfined}"));
    up.apply(&pod("usual", usual));
    up.apply(&pod("nobody", &format!("{usual}, runAsUser: 65534, runAsGroup: 65534")));
    up.apply(&pod(
        "own",
        "seccompProfile: {type: Localhost, localhostProfile: mine.json}",
    ));
    for (name, mode) in [("free", "0"), ("usual", "2"), ("nobody", "2")] {
        up.run(&[
            "wait",
            &format!("pod/{name}"),
            "--for=jsonpath={.status.phase}=Succeeded",
            "--timeout=60s",
        ]);
        let log = up.run(&["logs", name]);
        let seen = log.lines().find_map(|line| line.strip_prefix("Seccomp:"));
        assert_eq!(seen.map(str::trim), Some(mode), "{name}: {log}");
        let made = log.lines().any(|line| line == "namespaces");
        match mode {
            "0" if !made => {
                stead_test::skip::skipped("a refused namespace: this machine refuses it without a filter too")
            }
            "0" => {}
            _ => assert!(!made, "{name}: {log}"),
        }
    }
    eventually("a profile of one's own is refused", PATIENCE, || {
        let path = "jsonpath={.status.containerStatuses[0].state.waiting}";
        let waiting = up.run(&["get", "pod", "own", "-o", path]);
        let told = waiting.contains("CreateContainerConfigError") && waiting.contains("mine.json");
        told.then_some(()).ok_or(waiting)
    });
}
