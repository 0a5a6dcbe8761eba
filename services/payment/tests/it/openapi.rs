//! Shell: the OpenAPI document of the running payment service.

use saga_engine::testing::description::assert_describes;
use saga_engine::testing::program::Running;

#[test]
fn openapi_describes_actual_routes() {
    assert_describes(&Running::start(env!("CARGO_BIN_EXE_payment"), "[bus]\nurl = \"nats://127.0.0.1:1\"\n"));
}
