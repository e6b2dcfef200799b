//! A fill that is killed at each of its pieces, before and after each is decided.

use integration::{connect, soak};

use super::load::{Load, VIEWS};
use super::processes::{Place, check_healed};

/// Pairs of the filled table: with 1000 rows a piece, five pieces of it alone.
const N_PAIRS: u64 = 2500;

#[tokio::test]
async fn a_fill_killed_at_each_piece_resumes_and_is_adopted() {
    let (place, load) = (Place::of_one_process(), Load::default());
    let server = place.start_server();
    let mut client = connect(server.address(), "test").await.unwrap();
    load.prepare(&mut client).await;
    load.write_pairs(&mut client, N_PAIRS).await;
    assert!(server.terminate().success());
    // One that is maintained row by row, and one that speaks at the end.
    for (name, query) in VIEWS.into_iter().skip(1).take(if soak() { VIEWS.len() } else { 2 }) {
        let mut n_pieces = 0;
        let mut created = false;
        // Each process dies at the first piece that it reads, the next one when it has decided one.
        for point in ["runtime::fill_piece_read", "runtime::fill_piece_done"].into_iter().cycle() {
            let mut server = place.begin_server(&format!("{point}=return(kill)"));
            let ready = server.get_ready();
            if ready && !created {
                let mut client = connect(server.address(), "test").await.unwrap();
                load.create_unheard(&mut client, name, query).await;
                created = true;
            } else if ready && load.is_published(server.address(), name).await {
                break;
            }
            let death = server.wait_exit().await;
            assert!(death.is_by_fail_point(point), "{name}: {death:?}");
            n_pieces += u64::from(point == "runtime::fill_piece_done");
        }
        println!("{name} was killed at {n_pieces} pieces");
        assert!(n_pieces >= 2 * N_PAIRS / 1000, "{name}: every piece was killed");
        let server = place.start_server();
        check_healed(&load, &server).await;
        assert!(server.terminate().success());
    }
}
