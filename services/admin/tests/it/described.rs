//! Shell: the description of the routes of a running admin service.

use saga_engine::testing::description::assert_describes;
use saga_engine::testing::program::Running;

#[test]
fn what_it_says_of_its_routes_is_true() {
    assert_describes(&Running::start(env!("CARGO_BIN_EXE_admin"), "[bus]\nurl = \"nats://127.0.0.1:1\"\n"));
}
