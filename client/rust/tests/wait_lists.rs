//! C9: a first test of the helpers.
mod util;

use util::*;

fn helpers(setup: Setup) {
    let mut client = setup.client();
    let (reader, writer) = pipe();
    let watch = client.watch(&reader, READABLE, Mode::Once, 7).unwrap();
    client.expect_nothing();
    write_all(&writer, b"x");
    client.expect_ready(watch, READABLE);
    client.expect_nothing();
    client.expect_quiet_for(std::time::Duration::from_millis(200));
}

fn leak(setup: Setup) {
    expect_no_leak(|| helpers(setup));
}

in_every_setup!(helpers);
in_every_setup_alone!(leak);
