//! Shell: the OpenAPI document of the running bank.

use saga_engine::testing::description::assert_describes;
use saga_engine::testing::program::Running;

#[test]
fn openapi_describes_actual_routes() {
    assert_describes(&Running::start(env!("CARGO_BIN_EXE_bank"), ""));
}
