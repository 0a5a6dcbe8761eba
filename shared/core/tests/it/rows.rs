//! Folded rows, compared with the stored JSON.

use saga_core::row::RowKind;

use crate::decision::till::Tin;

#[test]
fn fold_matches_only_its_exact_json() {
    let mut tin = (RowKind::of::<Tin>().begin)(None).expect("a tin");
    tin.add(r#"{"Put":3}"#).expect("an event");
    let state = tin.projected("a").expect("JSON").state;
    assert!(tin.kept_as("a", state.as_bytes()).is_some());
    let shorter = &state[..state.len() - 1];
    for other in ["", shorter, &format!("{state} "), &state.replacen('{', " ", 1), &state.replace('3', "4")] {
        assert!(tin.kept_as("a", other.as_bytes()).is_none(), "{other}");
    }
}
