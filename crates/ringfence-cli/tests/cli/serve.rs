//! `serve`: locks over HTTP on a Unix socket, and `elect --http`. The examples of other languages
//! are tested by `examples/languages/check.py`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process::Command;

use ringfence_testkit::wait_until;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::hostile::peak_memory_kb;
use super::scene::{Finished, PATIENCE, Running, Scene, program};

const FILE: &str = include_str!("../../src/serve/openapi.json");
const TOKEN: &str = "a-token-of-24-characters";

/// A running service, which is killed at the end of its test.
struct Service {
    running: Running,
    socket: PathBuf,
}

impl Service {
    #[track_caller]
    fn start(scene: &Scene, options: &[&str]) -> Self {
        let socket = scene.path("s.sock");
        let path = socket.display().to_string();
        let args = [&["--json", "serve", "--socket", &path], options].concat();
        let running = Running::start(scene.ringfence(&args));
        running.wait_for_output("socket");
        Self { running, socket }
    }

    /// The address of `--listen`.
    fn address(&self) -> String {
        let said: Value = serde_json::from_str(&self.running.stdout()).expect("JSON");
        said["listen"].as_str().expect("an address").to_owned()
    }

    fn connect(&self) -> UnixStream {
        let socket = UnixStream::connect(&self.socket).expect("the service listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket
    }

    /// Sends a request and reads the whole answer.
    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut socket = self.connect();
        send(&mut socket, method, path, "", body);
        let (status, text) = read_all(socket);
        let value = serde_json::from_str(&text);
        (
            status,
            value.unwrap_or_else(|error| panic!("{error}: {text}")),
        )
    }

    /// Opens a stream, and reads its events until `held`.
    #[track_caller]
    fn hold(&self, order: &Value) -> Hold {
        let mut hold = self.order(order);
        assert_eq!(hold.status, 200);
        hold.until("held");
        hold
    }

    /// Opens a stream.
    #[track_caller]
    fn order(&self, order: &Value) -> Hold {
        let mut socket = self.connect();
        send(&mut socket, "POST", "/v1/hold", "", &order.to_string());
        Hold::read(socket)
    }

    /// Whether another client can take the lock `name` now.
    fn is_free(&self, name: &str) -> bool {
        let order = json!({"name": name, "wait": 0, "ttl": "1s"}).to_string();
        let (status, taken) = self.ask("POST", "/v1/acquire", &order);
        if status == 200 {
            let order = json!({"name": name, "token": taken["token"]}).to_string();
            assert_eq!(self.ask("POST", "/v1/release", &order).0, 200);
        }
        status == 200
    }
}

/// HTTP/1.0: the answer is plain lines, until the connection ends.
fn send(socket: &mut impl Write, method: &str, path: &str, headers: &str, body: &str) {
    let length = body.len();
    let request =
        format!("{method} {path} HTTP/1.0\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
    // The service may refuse before it has read everything.
    let _ = socket.write_all(request.as_bytes());
}

fn read_all(mut socket: impl Read) -> (u16, String) {
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (status_of(head), body.to_owned())
}

fn status_of(head: &str) -> u16 {
    let status = head.split(' ').nth(1);
    status.and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// A stream of events. Dropped, it closes its connection.
struct Hold {
    lines: BufReader<UnixStream>,
    status: u16,
    last: Value,
}

impl Hold {
    #[track_caller]
    fn read(socket: UnixStream) -> Self {
        let mut lines = BufReader::new(socket);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let read = lines.read_line(&mut head).expect("a head");
            assert_ne!(read, 0, "the service closed the connection: {head}");
        }
        Self {
            lines,
            status: status_of(&head),
            last: Value::Null,
        }
    }

    /// The next event, if the stream has not ended.
    #[track_caller]
    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("an event");
        if line.is_empty() {
            return None;
        }
        self.last = serde_json::from_str(&line).expect("JSON");
        fits(&self.last, "Event");
        Some(self.last.clone())
    }

    #[track_caller]
    fn until(&mut self, event: &str) -> Value {
        loop {
            let next = self
                .next()
                .unwrap_or_else(|| panic!("it ended: {}", self.last));
            if next["event"] == event {
                return next;
            }
        }
    }
}

/// Checks `value` against the schema `name` of the OpenAPI file.
#[track_caller]
fn fits(value: &Value, name: &str) {
    let mut schema: Value = serde_json::from_str(FILE).expect("JSON");
    schema["$ref"] = format!("#/components/schemas/{name}").into();
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{name}: {errors:#?}\n{value:#}");
}

#[test]
fn a_request_holds_the_lock_until_its_connection_closes() {
    let (_server, scene) = Scene::served();
    let service = Service::start(&scene, &[]);
    let mut first = service.hold(&json!({"name": "x", "ttl": "1s", "label": "first"}));
    let held = first.last.clone();
    assert!(held["deadline_boot_ms"].is_u64(), "{held}");
    let renewed = first.until("renewed");
    assert!(renewed["deadline_boot_ms"].as_u64() > held["deadline_boot_ms"].as_u64());
    assert!(!service.is_free("x"));

    let mut second = service.order(&json!({"name": "x", "ttl": "1s"}));
    let waiting = second.until("waiting");
    let holder = waiting["holder"].as_str().expect("a holder");
    assert!(holder.starts_with("first ("), "{waiting}");
    drop(first);
    let held_next = second.until("held");
    assert!(held_next["fence"].as_u64() > held["fence"].as_u64());
}

#[test]
fn a_delete_by_its_id_releases_the_lock_and_ends_the_stream() {
    let (_server, scene) = Scene::served();
    let service = Service::start(&scene, &[]);
    let mut hold = service.hold(&json!({"name": "x"}));
    let path = format!("/v1/hold/{}", hold.last["id"].as_str().expect("an id"));
    let (status, released) = service.ask("DELETE", &path, "");
    assert_eq!(status, 200);
    fits(&released, "Released");
    hold.until("released");
    assert_eq!(hold.next(), None);
    assert!(service.is_free("x"));
    assert_eq!(service.ask("DELETE", &path, "").0, 404);
}

#[test]
fn a_lost_lock_is_told_and_ends_the_stream() {
    let (_server, scene) = Scene::served();
    let service = Service::start(&scene, &[]);
    let mut hold = service.hold(&json!({"name": "x"}));
    let broken = scene.ringfence(&["break", "x", "--yes", "--reason", "test"]);
    assert_eq!(Finished::of(broken).code(), 0);
    hold.until("lost");
    assert_eq!(hold.next(), None);
    let limited = json!({"name": "y", "ttl": "1s", "max_hold": "1s"});
    service.hold(&limited).until("lost");
}

#[test]
fn every_answer_fits_the_openapi_file() {
    let (server, scene) = Scene::served();
    let service = Service::start(&scene, &[]);
    let (status, document) = service.ask("GET", "/v1/openapi.json", "");
    assert_eq!((status, &document["openapi"]), (200, &json!("3.1.0")));
    let case = |method: &str, path: &str, body: &Value, wanted: u16, schema: &str| {
        let (status, value) = service.ask(method, path, &body.to_string());
        assert_eq!(status, wanted, "{method} {path}: {value}");
        fits(&value, schema);
        let shape = path.split('/').take(3).collect::<Vec<_>>().join("/");
        let described = document["paths"].as_object().expect("paths").iter();
        let described = described
            .filter(|(path, _)| path.starts_with(&shape))
            .any(|(_, path)| {
                path[method.to_lowercase()]["responses"][wanted.to_string()].is_object()
            });
        assert!(
            described || wanted == 404,
            "{wanted} of {method} {path} is not described"
        );
        value
    };
    let order = json!({"name": "a/b", "ttl": "5s"});
    let acquired = case("POST", "/v1/acquire", &order, 200, "Acquired");
    let again = json!({"name": "a/b", "wait": 0});
    case("POST", "/v1/acquire", &again, 409, "Problem");
    case("POST", "/v1/hold", &again, 409, "Problem");
    let seen = case("GET", "/v1/locks/a/b", &json!({}), 200, "Lock");
    assert_eq!(seen["state"], "held");
    let receipt = json!({"name": "a/b", "token": acquired["token"]});
    case("POST", "/v1/extend", &receipt, 200, "Extended");
    case("POST", "/v1/release", &receipt, 200, "Released");
    case("POST", "/v1/extend", &receipt, 410, "Problem");
    let malformed = json!({"name": "a/b", "token": "s3cr3t"});
    let refused = case("POST", "/v1/release", &malformed, 400, "Problem");
    assert!(!refused.to_string().contains("s3cr3t"), "{refused}");
    case("POST", "/v1/hold", &json!({"name": ""}), 400, "Problem");
    case("GET", "/v1/health", &json!({}), 200, "Health");
    case("GET", "/v1/nothing", &json!({}), 404, "Problem");
    let permits = json!({"name": "s", "kind": "semaphore", "permits": 2});
    assert_eq!(service.hold(&permits).last["slot"], 0);
    service.hold(&json!({"name": "r", "kind": "read"}));
    service.hold(&json!({"names": ["m", "n"]}));
    let mut socket = service.connect();
    send(&mut socket, "GET", "/metrics", "", "");
    let (_, page) = read_all(socket);
    assert!(page.contains("\nringfence_serve_holds "), "{page}");

    drop(server);
    wait_until("no majority", PATIENCE, || {
        service.ask("GET", "/v1/health", "").0 == 503
    });
    let hurried = json!({"name": "a", "no_quorum_after": "500ms"});
    case("POST", "/v1/acquire", &hurried, 503, "Problem");
    let mut hold = service.order(&hurried);
    assert_eq!(hold.until("refused")["status"], 503);
}

#[test]
fn a_service_that_stops_tells_its_clients_and_releases_nothing_early() {
    let (_server, scene) = Scene::served();
    let service = Service::start(&scene, &["--stop-grace", "500ms"]);
    let mut stays = service.hold(&json!({"name": "stays", "ttl": "20s"}));
    let mut leaves = service.hold(&json!({"name": "leaves", "ttl": "20s"}));
    let mut waits = service.order(&json!({"name": "stays", "wait": "30s"}));
    waits.until("waiting");
    service.running.signal(Signal::TERM);
    leaves.until("stopping");
    drop(leaves);
    assert_eq!(waits.until("refused")["status"], 503);
    stays.until("lost");
    assert_eq!(stays.next(), None);
    let socket = service.socket.clone();
    assert_eq!(service.running.finish().code(), 0);
    assert!(!socket.exists(), "the socket is still there");
    // The client may be inside its validity; the one that closed its connection is not.
    let taken = |name| scene.ringfence(&["run", "-n", name, "--", "true"]);
    assert_eq!(Finished::of(taken("stays")).code(), 75);
    assert_eq!(Finished::of(taken("leaves")).code(), 0);
}

#[test]
fn a_client_that_does_not_read_keeps_its_lock_and_harms_no_other() {
    let (_server, scene) = Scene::served();
    let service = Service::start(&scene, &[]);
    let mut silent = service.connect();
    send(
        &mut silent,
        "POST",
        "/v1/hold",
        "",
        r#"{"name": "silent", "ttl": "500ms"}"#,
    );
    wait_until("the lock", PATIENCE, || !service.is_free("silent"));
    let mut other = service.hold(&json!({"name": "x", "ttl": "500ms"}));
    for _ in 0..5 {
        other.until("renewed");
    }
    assert!(
        !service.is_free("silent"),
        "a client that does not read lost its lock"
    );
}

#[test]
fn hostile_clients_harm_nobody() {
    let (_server, scene) = Scene::served();
    let service = Service::start(&scene, &[]);
    let mut bystander = service.hold(&json!({"name": "bystander", "ttl": "2s"}));
    // Heads that never end, and connections that send nothing.
    let mut open: Vec<UnixStream> = Vec::new();
    for number in 0..1_500 {
        let Ok(mut socket) = UnixStream::connect(&service.socket) else {
            continue;
        };
        if number % 2 == 0 {
            let _ = socket.write_all(b"POST /v1/hold HTTP/1.1\r\nx: ");
        }
        open.push(socket);
    }
    let name = "n".repeat(100_000);
    for body in [
        "{",
        "[]",
        "null",
        "\"x\"",
        "{\"name\": 7}",
        &format!("{{\"name\": \"{name}\"}}"),
        &"[".repeat(100_000),
    ] {
        assert_eq!(service.ask("POST", "/v1/hold", body).0, 400, "{body:.40}");
    }
    let endless = "x".repeat(300_000);
    assert_eq!(service.ask("POST", "/v1/hold", &endless).0, 413);
    let mut page = service.connect();
    send(
        &mut page,
        "GET",
        "/v1/health",
        "origin: http://evil.example\r\n",
        "",
    );
    assert_eq!(read_all(page).0, 403);
    bystander.until("renewed");
    service.hold(&json!({"name": "newcomer"}));
}

#[test]
fn a_thousand_streams_need_little_memory() {
    let (_server, scene) = Scene::served();
    let service = Service::start(&scene, &[]);
    let holds: Vec<Hold> = (0..1_000)
        .map(|number| service.order(&json!({"name": format!("n{number}"), "ttl": "30s"})))
        .collect();
    wait_until("a thousand holds", PATIENCE * 4, || {
        service.ask("GET", "/v1/health", "").1["holds"] == 1_000
    });
    let peak_kib = peak_memory_kb(service.running.process());
    assert!(
        peak_kib < 64 * 1024,
        "{peak_kib} KiB for a thousand streams"
    );
    drop(holds);
    wait_until("all to be released", PATIENCE * 4, || {
        service.ask("GET", "/v1/health", "").1["holds"] == 0
    });
}

#[test]
fn over_tcp_a_client_needs_the_token() {
    let (_server, scene) = Scene::served();
    scene.write("token", TOKEN);
    let file = scene.path("token");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("our own file");
    let file = file.display().to_string();
    let service = Service::start(&scene, &["--listen", "127.0.0.1:0", "--token-file", &file]);
    let ask = |headers: &str| {
        let mut socket = TcpStream::connect(service.address()).expect("it listens");
        send(&mut socket, "GET", "/v1/health", headers, "");
        read_all(socket).0
    };
    let authorised = format!("host: localhost\r\nauthorization: Bearer {TOKEN}\r\n");
    assert_eq!(ask(&authorised), 200);
    assert_eq!(ask("host: localhost\r\n"), 401);
    assert_eq!(ask(&authorised.replace("localhost", "evil.example")), 403);
    assert_eq!(
        ask(&format!("{authorised}origin: http://evil.example\r\n")),
        403
    );
    for address in ["0.0.0.0:0", "[::]:0"] {
        let args = ["serve", "--listen", address, "--token-file", &file];
        assert_eq!(Finished::of(scene.ringfence(&args)).code(), 64);
    }
    let without = ["serve", "--listen", "127.0.0.1:0"];
    assert_eq!(Finished::of(scene.ringfence(&without)).code(), 64);
}

#[test]
fn one_service_owns_the_socket_and_replaces_what_a_killed_one_left() {
    let (_server, scene) = Scene::served();
    let service = Service::start(&scene, &["--socket-mode", "0660"]);
    let mode = fs::metadata(&service.socket)
        .expect("the socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o660);
    let path = service.socket.display().to_string();
    let second = Finished::of(scene.ringfence(&["serve", "--socket", &path]));
    assert_eq!(second.code(), 64);
    assert!(
        second.stderr().contains("another `ringfence serve`"),
        "{}",
        second.stderr()
    );
    service.running.signal(Signal::KILL);
    service.running.finish();
    assert!(scene.has("s.sock"), "a killed service leaves its socket");
    Service::start(&scene, &[]).hold(&json!({"name": "x"}));

    scene.write("file", "precious");
    let file = scene.path("file").display().to_string();
    let refused = Finished::of(scene.ringfence(&["serve", "--socket", &file]));
    assert_eq!(refused.code(), 64);
    assert_eq!(fs::read_to_string(&file).expect("the file"), "precious");
}

#[test]
fn a_hangup_reads_the_config_again() {
    let (_server, scene) = Scene::served();
    let settings = scene.path("config.toml");
    let write = |ttl: &str| fs::write(&settings, format!("ttl = \"{ttl}\"\n"));
    write("5s").expect("a file");
    fs::set_permissions(&settings, fs::Permissions::from_mode(0o600)).expect("our own file");
    let file = settings.display().to_string();
    let service = Service::start(&scene, &["-v", "--config", &file]);
    let remaining = || {
        let held = service.hold(&json!({"name": "x"})).last["remaining_ms"].as_u64();
        held.expect("a time")
    };
    assert!(remaining() <= 5_000);
    let held = service.hold(&json!({"name": "kept"}));
    write("20s").expect("a file");
    service.running.signal(Signal::HUP);
    service.running.wait_for("read again");
    assert!(remaining() > 5_000);
    assert!(!service.is_free("kept"));
    drop(held);
}

#[test]
fn systemd_passes_the_socket_and_hears_that_the_service_is_ready() {
    let (_server, scene) = Scene::served();
    let notified = UnixDatagram::bind(scene.path("notify")).expect("a socket");
    notified
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout");
    let socket = scene.path("s.sock");
    // What systemd does: a listening socket as file 3.
    let starter = "import os, socket, sys\n\
        s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\n\
        os.dup2(s.fileno(), 3); os.set_inheritable(3, True)\n\
        os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))\n\
        os.execv(sys.argv[2], ['ringfence', 'serve'])";
    let mut command = Command::new("python3");
    command.args(["-c", starter]).arg(&socket).arg(program());
    let command = {
        command
            .env("RINGFENCE_NODES", scene.nodes())
            .env("RINGFENCE_CONFIG", "")
            .env("NOTIFY_SOCKET", scene.path("notify"));
        command
    };
    let service = Service {
        running: Running::start(command),
        socket,
    };
    let mut said = [0; 64];
    let length = notified.recv(&mut said).expect("a notification");
    assert_eq!(&said[..length], b"READY=1");
    service.hold(&json!({"name": "x"}));
    service.running.signal(Signal::TERM);
    let length = notified.recv(&mut said).expect("a notification");
    assert_eq!(&said[..length], b"STOPPING=1");
    let socket = service.socket.clone();
    assert_eq!(service.running.finish().code(), 0);
    assert!(socket.exists(), "the socket is systemd's");
}

#[test]
fn an_election_answers_over_http_who_leads() {
    let (_server, scene) = Scene::served();
    let candidate = || {
        let args = [
            "--json",
            "elect",
            "--ttl",
            "1s",
            "--http",
            "127.0.0.1:0",
            "boss",
        ];
        let running = Running::start(scene.ringfence(&args));
        running.wait_for_output("port");
        let said: Value = serde_json::from_str(&running.stdout()).expect("JSON");
        (said["port"].as_u64().expect("a port"), running)
    };
    let ask = |port: u64, path: &str| {
        let mut socket = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
        send(&mut socket, "GET", path, "host: localhost\r\n", "");
        let (status, body) = read_all(socket);
        (
            status,
            serde_json::from_str::<Value>(&body).unwrap_or_default(),
        )
    };
    let (first, leading) = candidate();
    wait_until("a leader", PATIENCE, || ask(first, "/leader").0 == 200);
    let (second, _other) = candidate();
    assert_eq!(ask(second, "/leader").0, 503);
    let (status, said) = ask(second, "/");
    assert_eq!((status, &said["leader"]), (200, &json!(false)));
    let fence = ask(first, "/").1["fence"].as_u64().expect("a fence");
    leading.signal(Signal::TERM);
    assert_eq!(leading.finish().code(), 143);
    wait_until("the other to lead", PATIENCE, || {
        ask(second, "/leader").0 == 200
    });
    assert!(ask(second, "/").1["fence"].as_u64() > Some(fence));
    let both = ["elect", "--http", "127.0.0.1:0", "boss", "--", "true"];
    assert_eq!(Finished::of(scene.ringfence(&both)).code(), 64);
    assert_eq!(Finished::of(scene.ringfence(&["elect", "boss"])).code(), 64);
}
