//! Certificates that a client with a real TLS library accepts, or refuses for the right reason.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use ringfence_testkit::{Certificates, Flavor, Server};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

#[test]
fn a_client_that_trusts_the_authority_gets_through() {
    let certificates = Certificates::generate();
    let server = Server::builder(Flavor::Redis).tls(&certificates).start();
    assert_eq!(
        server.url(),
        format!("rediss://127.0.0.1:{}", server.port())
    );
    for host in ["127.0.0.1", "localhost"] {
        assert_eq!(ping(&server, &certificates, host).unwrap(), "+PONG\r\n");
    }
}

#[test]
fn a_client_that_trusts_another_authority_does_not() {
    let server = Server::builder(Flavor::Redis)
        .tls(&Certificates::generate())
        .start();
    let error = ping(&server, &Certificates::generate(), "127.0.0.1").unwrap_err();
    assert!(
        error.to_string().contains("invalid peer certificate"),
        "{error}"
    );
}

#[test]
fn a_certificate_for_another_host_is_refused() {
    let certificates = Certificates::for_hosts(&["elsewhere.example"]);
    let server = Server::builder(Flavor::Redis).tls(&certificates).start();
    let error = ping(&server, &certificates, "127.0.0.1").unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
}

#[test]
fn certificates_live_as_long_as_a_server_may_need_them() {
    let certificates = Certificates::generate();
    let key = certificates.key_file();
    let server = Server::builder(Flavor::Redis).tls(&certificates).start();
    drop(certificates);
    server.restart();
    drop(server);
    assert!(!fs::exists(key).unwrap());
}

fn ping(server: &Server, trusted: &Certificates, host: &str) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(trusted.authority_file()).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(client, TcpStream::connect(server.addr())?);
    stream.write_all(b"PING\r\n")?;
    let mut reply = [0; 7];
    stream.read_exact(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}
