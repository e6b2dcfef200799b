//! SIGKILL from outside at any moment, of the server, of the coordinator, of both at once; and what a
//! process that was started with a fail point nobody knows has to say.

use std::collections::BTreeMap;

use integration::{Server, soak};

use super::load::Load;
use super::processes::{Place, check_healed, prepare};

#[tokio::test]
async fn killed_at_any_moment_under_load_nothing_is_lost_and_views_verify() {
    let (place, load) = (Place::of_one_process(), Load::default());
    let server = place.start_server();
    prepare(&load, &server).await;
    server.kill();
    for round in 0..(if soak() { 40 } else { 3 }) {
        let (n_written, n_changed) = (load.n_written(), load.n_changed());
        let server = place.start_server();
        let address = server.address();
        let kill = async {
            load.written(20 + round * 37 % 150).await;
            server.kill();
        };
        futures::join!(load.run(address), kill);
        let server = place.start_server();
        check_healed(&load, &server).await;
        assert!(load.n_written() >= n_written + 30, "the writers wrote");
        assert!(load.n_changed() > n_changed, "views were added and dropped");
        server.kill();
    }
}

#[tokio::test]
async fn coordinator_and_server_killed_apart_under_load_resume() {
    let (place, load) = (Place::of_two_processes(), Load::default());
    let mut coordinator = place.start_coordinator("");
    let mut server = place.start_server();
    prepare(&load, &server).await;
    for round in 0..(if soak() { 30 } else { 3 }) {
        let (n_written, n_changed) = (load.n_written(), load.n_changed());
        let address = server.address();
        let kill = async {
            // The coordinator dies and comes back while the load goes on; then the owner of the directory
            // dies, and the coordinator finds it again.
            load.written(10 + round * 41 % 90).await;
            coordinator.kill();
            load.written(5).await;
            let next = place.start_coordinator("");
            load.written(20).await;
            server.kill();
            next
        };
        let (_, next) = futures::join!(load.run(address), kill);
        coordinator = next;
        server = place.start_server();
        check_healed(&load, &server).await;
        assert!(load.n_written() >= n_written + 45, "the writers wrote, also without a coordinator");
        assert!(load.n_changed() > n_changed, "views were added and dropped");
    }
    assert!(server.terminate().success());
    assert!(coordinator.terminate().success());
}

#[test]
fn a_process_with_an_unknown_fail_point_refuses_to_start() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = ["server", "--data-dir", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let coordinator = ["coordinator", "--store", "127.0.0.1:1", "--listen", "127.0.0.1:0"];
    for arguments in [&server[..], &coordinator[..]] {
        for (text, said) in [
            ("runtime::seeled=return(kill)", "fail point runtime::seeled is unknown"),
            ("runtime::sealed=return(kill);sealed=off", "fail point sealed is unknown"),
            ("runtime::sealed", "fail point runtime::sealed has no action"),
            ("runtime::sealed=nonsense", "fail point runtime::sealed=nonsense: "),
        ] {
            let environment = BTreeMap::from([("FAILPOINTS".to_owned(), text.to_owned())]);
            let mut process = Server::spawn(arguments, &environment);
            assert_eq!(process.wait_line("listening"), None, "{text}");
            let death = process.end();
            assert_eq!(death.status.code(), Some(1), "{text}: {death:?}");
            assert!(death.output.iter().any(|line| line.contains(said)), "{text}: {death:?}");
        }
    }
    assert!(!data.exists(), "nothing was made");
}
