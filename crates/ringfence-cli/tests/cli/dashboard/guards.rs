//! Every guard of the dashboard, with the bytes that an attacker would send.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::sync::LazyLock;

use serde_json::json;

use super::super::scene::{Finished, Scene};
use super::http::{ask, connect, get, send};
use super::{DashboardProcess, TOKEN, token_file};

const BEARER: &str = "Authorization: Bearer a-token-of-24-characters";
const JSON: &str = "Content-Type: application/json";

static PATHS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let file = include_str!("../../../src/dashboard/assets/openapi.json");
    let file: serde_json::Value = serde_json::from_str(file).expect("JSON");
    let paths = file["paths"].as_object().expect("paths");
    let data = paths.keys().filter(|path| *path != "/healthz");
    data.cloned().collect()
});

fn start() -> (Scene, DashboardProcess) {
    let scene = Scene::embedded();
    // The file of the locks must exist before a client that only looks.
    assert!(scene.is_free());
    let dashboard = DashboardProcess::with_token(&scene, &["--allowed-host", "locks.example.com"]);
    (scene, dashboard)
}

#[test]
fn silent_connections_do_not_keep_a_viewer_out() {
    let (_scene, dashboard) = start();
    let silent: Vec<_> = (0..200).map(|_| connect(dashboard.port)).collect();
    assert_eq!(get(dashboard.port, "/healthz").status, 200);
    // They would be closed after ten seconds: the viewer did not have to wait for that.
    let open = silent.iter().filter(|socket| {
        socket.set_nonblocking(true).expect("a socket");
        matches!(socket.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    });
    assert!(open.count() > 100);
}

#[test]
fn every_answer_forbids_what_the_page_does_not_need() {
    let (_scene, dashboard) = start();
    let port = dashboard.port;
    for path in [
        "/",
        "/app.js",
        "/healthz",
        "/metrics",
        "/nothing",
        "/api/v1/cluster",
    ] {
        for answer in [
            get(port, path),
            ask(port, &format!("GET {path}"), &["Host: evil"], ""),
        ] {
            let policy = answer.header("content-security-policy").unwrap_or_default();
            assert!(
                policy.starts_with("default-src 'none'; script-src 'self';"),
                "{answer:?}"
            );
            assert!(!policy.contains("unsafe"), "{policy}");
            assert_eq!(
                answer.header("x-content-type-options"),
                Some("nosniff"),
                "{path}"
            );
            assert_eq!(
                answer.header("referrer-policy"),
                Some("no-referrer"),
                "{path}"
            );
            assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
            assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
            assert_eq!(answer.header("set-cookie"), None, "{path}");
        }
    }
}

#[test]
fn the_page_has_no_script_or_style_inside_and_nothing_from_elsewhere() {
    let (_scene, dashboard) = start();
    let page = ask(dashboard.port, "GET /", &[], "").body;
    for forbidden in [
        "<style",
        " style=",
        " onclick=",
        "http://",
        "https://",
        "<script>",
    ] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    for file in page.split("=\"/").skip(1) {
        let file = file.split('"').next().unwrap_or_default();
        let answer = ask(dashboard.port, &format!("GET /{file}"), &[], "");
        assert_eq!(answer.status, 200, "{file}");
    }
}

#[test]
fn a_foreign_host_is_refused_on_every_path() {
    let (_scene, dashboard) = start();
    let port = dashboard.port;
    let paths = PATHS
        .iter()
        .map(String::as_str)
        .chain(["/", "/healthz", "/app.js"]);
    for path in paths {
        for host in [
            "Host: evil.example",
            "Host: 10.1.2.3",
            "Host: localhost.evil.example",
        ] {
            let answer = ask(port, &format!("GET {path}"), &[host, BEARER], "");
            assert_eq!(answer.status, 421, "{host} {path}: {answer:?}");
        }
    }
    let proxied = ask(
        port,
        "GET /api/v1/about",
        &["Host: locks.example.com", BEARER],
        "",
    );
    assert_eq!(proxied.status, 200, "{proxied:?}");
    let old = send(port, "GET / HTTP/1.0\r\n\r\n");
    assert_ne!(old.status, 200, "{old:?}");
    let absolute = format!(
        "GET http://evil.example/metrics HTTP/1.1\r\nHost: evil.example\r\n{BEARER}\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(send(port, &absolute).status, 421);
}

#[test]
fn without_the_token_there_is_no_data() {
    let (_scene, dashboard) = start();
    let port = dashboard.port;
    let tricks = [
        "/api/v1/%6cocks",
        "//api/v1/locks",
        "/api/v1/locks/",
        "/api/v1/../v1/locks",
        "/./metrics",
        "/%2e%2e/metrics",
        "/metrics?token=a-token-of-24-characters",
        "/metrics;x",
        "/METRICS",
        "/api/v1/locks?Authorization=Bearer%20a-token-of-24-characters",
        "/app.js/../metrics",
        "/healthz/../metrics",
        "/../../etc/passwd",
    ];
    let paths = PATHS.iter().map(String::as_str).chain(tricks);
    for path in paths {
        for headers in [
            &[][..],
            &["Authorization: Bearer wrong-token-of-24-chars"],
            &["Cookie: token=a-token-of-24-characters"],
        ] {
            let answer = ask(port, &format!("GET {path}"), headers, "");
            assert_eq!(answer.status, 401, "{path}: {answer:?}");
        }
    }
    for path in tricks.iter().filter(|path| !path.contains('?')) {
        let answer = ask(port, &format!("GET {path}"), &[BEARER], "");
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
    }
    // What has no data needs none.
    assert_eq!(ask(port, "GET /healthz", &[], "").body, "ok\n");
    assert_eq!(ask(port, "GET /", &[], "").status, 200);
}

#[test]
fn other_methods_and_other_sites_are_refused() {
    let (_scene, dashboard) = start();
    let port = dashboard.port;
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"] {
        for path in ["/", "/metrics", "/api/v1/locks", "/api/v1/events"] {
            let answer = ask(port, &format!("{method} {path}"), &[BEARER], "");
            assert_eq!(answer.status, 405, "{method} {path}: {answer:?}");
        }
    }
    assert_eq!(ask(port, "GET /api/v1/break", &[BEARER], "").status, 405);
    for header in [
        "Origin: https://evil.example",
        "Origin: null",
        "Sec-Fetch-Site: cross-site",
    ] {
        let answer = ask(port, "GET /api/v1/locks", &[BEARER, header], "");
        assert_eq!(answer.status, 403, "{header}: {answer:?}");
    }
}

#[test]
fn a_break_needs_the_token_json_the_name_and_a_reason() {
    let (scene, dashboard) = start();
    let port = dashboard.port;
    let held = scene.run(&[], "echo $$ > $DIR/held; exec sleep 1000");
    scene.line("held");
    let order = |confirm: &str| {
        json!({"name": "x", "confirm": confirm, "reason": "it is dead"}).to_string()
    };
    let right = order("x");
    let refused =
        |headers: &[&str], body: &str| ask(port, "POST /api/v1/break", headers, body).status;
    assert_eq!(refused(&[JSON], &right), 401);
    assert_eq!(refused(&[BEARER], &right), 415);
    assert_eq!(refused(&[BEARER, "Content-Type: text/plain"], &right), 415);
    assert_eq!(
        refused(&[BEARER, JSON, "Origin: https://evil.example"], &right),
        403
    );
    assert_eq!(refused(&[BEARER, JSON], &order("y")), 422);
    assert_eq!(refused(&[BEARER, JSON], "{"), 400);
    let long = json!({"name": "x", "confirm": "x", "reason": "y".repeat(100_000)}).to_string();
    assert_eq!(refused(&[BEARER, JSON], &long), 413);
    assert!(!scene.is_free(), "nothing was broken");

    let old = json!({"name": "x", "confirm": "x", "reason": "r", "fence": 1}).to_string();
    assert_eq!(
        refused(&[BEARER, JSON], &old),
        409,
        "another hold than the one that was seen"
    );
    let broken = ask(port, "POST /api/v1/break", &[BEARER, JSON], &right);
    assert_eq!(
        (broken.status, &broken.json()["holders"]),
        (200, &json!(1)),
        "{broken:?}"
    );
    assert_eq!(refused(&[BEARER, JSON], &right), 409, "it is free");
    dashboard.running.wait_for("it is dead");
    drop(held);
}

#[test]
fn without_allow_break_nothing_can_be_broken() {
    let scene = Scene::embedded();
    assert!(scene.is_free());
    let file = token_file(&scene, TOKEN, 0o600);
    let dashboard = DashboardProcess::start(&scene, &["--token-file", &file]);
    let order = json!({"name": "x", "confirm": "x", "reason": "r"}).to_string();
    let answer = ask(
        dashboard.port,
        "POST /api/v1/break",
        &[BEARER, JSON],
        &order,
    );
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(
        get(dashboard.port, "/api/v1/about").json()["break_allowed"],
        false
    );
}

#[test]
fn it_refuses_to_start_without_a_good_token_where_one_is_needed() {
    let scene = Scene::embedded();
    let refused = |args: &[&str], why: &str| {
        let said = Finished::of(scene.ringfence(&[&["dashboard"], args].concat()));
        assert_eq!(said.code(), 64, "{}", said.stderr());
        assert!(said.stderr().contains(why), "{}", said.stderr());
    };
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        refused(&["--listen", listen], "--token-file");
    }
    refused(&["--allow-break"], "--token-file");
    let short = token_file(&scene, "short", 0o600);
    refused(&["--token-file", &short], "at least 16 characters");
    let open = token_file(&scene, TOKEN, 0o644);
    refused(&["--token-file", &open], "0644");
    refused(&["--token-file", "/nowhere/token"], "/nowhere/token");
    refused(&["--allowed-host", "https://a"], "not a host name");
}

#[test]
fn slow_and_oversized_requests_end() {
    let (_scene, dashboard) = start();
    let port = dashboard.port;
    // A head that never ends: the dashboard closes the connection, and serves others meanwhile.
    let mut slow = connect(port);
    slow.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        .expect("written");
    let long = format!("X-Long: {}", "y".repeat(64 * 1024));
    let answer = ask(port, "GET /", &[&long], "");
    assert_eq!(answer.status, 431, "{}", answer.head);
    let many: Vec<String> = (0..500).map(|n| format!("X-{n}: y")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(ask(port, "GET /", &many, "").status, 431);
    assert_eq!(send(port, "nonsense\r\n\r\n").status, 400);
    // A body that is announced and never sent.
    let mut silent = connect(port);
    let head = format!(
        "POST /api/v1/break HTTP/1.1\r\nHost: localhost\r\n{BEARER}\r\n{JSON}\r\nContent-Length: 100\r\n\r\n"
    );
    silent.write_all(head.as_bytes()).expect("written");
    let mut status = String::new();
    BufReader::new(&silent)
        .read_line(&mut status)
        .expect("an answer");
    assert!(status.starts_with("HTTP/1.1 408 "), "{status}");
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest)
        .expect("the dashboard closes it");
}
