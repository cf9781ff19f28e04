//! The short form of the faults on real servers.

use std::path::Path;
use std::time::Duration;

use ringfence_testkit::Flavor;
use ringfence_verify::faults::{self, Kind, Settings};

#[test]
fn half_a_minute_of_every_fault_breaks_nothing() {
    let settings = Settings {
        seed: 5,
        span: Duration::from_secs(27),
        nodes: 5,
        flavors: Flavor::ALL.to_vec(),
        out: Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults"),
        program: env!("CARGO_BIN_EXE_ringfence-verify").into(),
    };
    let outcome = faults::run(&settings, |_, _| {}).unwrap();
    println!("{outcome}");
    assert!(outcome.violations.is_empty(), "{outcome}");

    // And enough happened for that to mean something. A busy machine gets far less done than an idle one.
    let figures = &outcome.figures;
    for kind in Kind::ALL {
        assert!(
            figures.faults.contains_key(kind.name()),
            "no {}",
            kind.name()
        );
    }
    for wanted in ["exclusive", "several names", "shared", "permits"] {
        assert!(figures.grants.contains_key(wanted), "no grant: {wanted}");
    }
    assert!(figures.granted() >= 20, "{outcome}");
    assert!(figures.writes >= 10, "{outcome}");
    assert!(figures.lost >= 1, "{outcome}");
    assert!(figures.late + figures.lost_updates >= 1, "{outcome}");
    let picture = settings.out.join("picture.html");
    assert!(std::fs::read_to_string(picture).unwrap().contains("<svg"));
}
