//! Addresses, and TLS in all its refusals.

use std::path::{Path, PathBuf};

use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Server, ServerTlsConfig};

use super::*;
use crate::tasks::Tasks;

#[test]
fn addresses_become_urls() {
    assert_eq!(url_of("pd:2379", false), "http://pd:2379");
    assert_eq!(url_of("http://pd:2379/", false), "http://pd:2379");
    assert_eq!(url_of("http://pd:2379", true), "https://pd:2379", "one set of certificates for all");
}

#[tokio::test]
async fn a_missing_certificate_is_named() {
    let mut options = Options::new(Vec::new());
    options.tls = Some(Tls { ca: "no/such.pem".into(), identity: None, domain: None });
    let error = connect(&options, "localhost:1").await.expect_err("there is no such file");
    assert!(error.message().contains("no/such.pem"), "{error}");
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certs").join(name)
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(file(name)).expect("the certificate is there")
}

/// A server under TLS that has no service; returns its address.
async fn serve(tasks: &Tasks) -> String {
    let identity = Identity::from_pem(read("server.pem"), read("server-key.pem"));
    let tls = ServerTlsConfig::new().identity(identity);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    let server = Server::builder()
        .tls_config(tls)
        .expect("the certificates are good")
        .add_routes(tonic::service::Routes::default());
    let stop = tasks.stop_token();
    tasks.spawn("server", async move {
        let serving = server.serve_with_incoming(TcpListenerStream::new(listener));
        drop(stop.run_until_cancelled(serving).await);
    });
    format!("localhost:{}", address.port())
}

fn options(ca: PathBuf) -> Options {
    let mut options = Options::new(Vec::new());
    let identity = Some((file("client.pem"), file("client-key.pem")));
    options.tls = Some(Tls { ca, identity, domain: None });
    options
}

#[tokio::test]
async fn servers_must_be_of_our_authority() {
    let tasks = Tasks::default();
    let address = serve(&tasks).await;
    connect(&options(file("ca.pem")), &address).await.expect("the authority signed the server");
    let error = connect(&options(file("other-ca.pem")), &address).await.expect_err("another did not");
    assert_eq!(error.kind(), types::ErrorKind::Unavailable, "{error}");
    let mut wrong = options(file("ca.pem"));
    wrong.tls.as_mut().expect("it is set").domain = Some("elsewhere".to_owned());
    assert!(connect(&wrong, &address).await.is_err(), "the certificate is for another name");
    let plain = Options::new(Vec::new());
    if let Ok(channel) = connect(&plain, &address).await {
        let mut client = crate::proto::pdpb::pd_client::PdClient::new(channel);
        let asked = client.get_members(crate::proto::pdpb::GetMembersRequest::default()).await;
        assert!(asked.is_err(), "no plain word is spoken there");
    }
    tasks.shutdown().await;
}

#[tokio::test]
async fn certificates_are_read_with_each_connection() {
    let tasks = Tasks::default();
    let address = serve(&tasks).await;
    let directory = tempfile::tempdir().expect("a directory");
    let ca = directory.path().join("ca.pem");
    std::fs::copy(file("other-ca.pem"), &ca).expect("it is copied");
    let options = options(ca.clone());
    assert!(connect(&options, &address).await.is_err());
    std::fs::copy(file("ca.pem"), &ca).expect("it is replaced");
    connect(&options, &address).await.expect("the new one is read");
    tasks.shutdown().await;
}
