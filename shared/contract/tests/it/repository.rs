//! Files of the repository that list the participants and cannot derive them. Kubernetes: `scripts/check-k8s.sh`.

use std::fs;
use std::path::Path;

use contract::topology::PARTICIPANTS;

/// Files, and what each must have for every participant, with its `<name>` and `<port>`.
const PLACES: [(&str, &[&str]); 7] = [
    ("README.md", &["| [`<name>`](services/<name>/src/lib.rs) | <port> |"]),
    (
        "services/Dockerfile",
        &["FROM base AS <name>\nCOPY --from=build /programs/<name> /<name>\nENTRYPOINT [\"/<name>\"]"],
    ),
    (
        "docker-compose.yml",
        &[
            "\n  <name>:\n    <<: *service\n    image: saga/<name>:0.1.0\n    build: { <<: *build, target: <name> }",
            "<NAME>__HTTP__BIND: 0.0.0.0:<port>",
            "<NAME>__HTTP__ALLOWED_HOSTS: <name>",
            "<NAME>__STORE__URL: ${SAGA_<NAME>_STORE:-sqlite:/data/<name>.db}",
            "- <name>-data:/data\n      - credentials-<name>:/credentials:ro",
            "ports: [\"127.0.0.1:${SAGA_<NAME>_PORT:-<port>}:<port>\"]",
            "test: [\"CMD\", \"/<name>\", \"healthy\"]",
            "      - credentials-<name>:/credentials/<name>\n",
            "\n  <name>-data:\n",
            "\n  credentials-<name>:\n",
        ],
    ),
    ("docker-compose.tokens.yml", &["\n  <name>:\n", "<NAME>__HTTP__TOKENS: /http/tokens.json"]),
    ("compose/postgres.env", &["SAGA_<NAME>_STORE=postgres://<name>@postgres/<name>"]),
    (
        "grafana/prometheus/prometheus.yml",
        &["- targets: [\"<name>:<port>\"]\n        labels: { service: <name> }"],
    ),
    ("grafana/prometheus/rules/saga.yml", &["absent(up{job=\"saga\", service=\"<name>\"})"]),
];

#[test]
fn every_participant_is_in_each_file_that_lists_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut missing = Vec::new();
    for (file, lines) in PLACES {
        let text = fs::read_to_string(root.join(file)).expect(file);
        for participant in &PARTICIPANTS {
            let of = |line: &&str| {
                let line = line.replace("<NAME>", &participant.name.to_uppercase());
                line.replace("<name>", participant.name).replace("<port>", &participant.port.to_string())
            };
            let lines = lines.iter().map(of).filter(|line| !text.contains(line));
            missing.extend(lines.map(|line| format!("{file}: {}", line.trim())));
        }
    }
    assert!(missing.is_empty(), "not in the file:\n{}", missing.join("\n"));
}
