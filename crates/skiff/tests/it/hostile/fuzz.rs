//! Some thousands of requests that are a little wrong. `cargo xtask fuzz` sends more of them.
use super::{Server, admin, run};
use testkit::client::Connection;
use testkit::fuzz;

#[test]
fn whatever_is_asked_is_answered_and_nothing_is_lost() {
    let server = Server::start();
    run(async {
        let mut connection = Connection::open(&admin(&server)).await.expect("a connection");
        let report = fuzz::run(&mut connection, 1, 2500).await.expect("every answer");
        assert!(report.faults.is_empty(), "{:#?}", report.faults);
        // Some get through: a server that refuses everything proves nothing.
        assert!(report.written > 20, "{report:?}");
    });
}
