"""Variables with credentials of the program that embeds us; withheld from our children. Pure module."""

from holdfast.light import Final

VARIABLES: Final = frozenset(
    {
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
        "CODEX_GUARDIAN_DECISIONS_API_KEY",
        "HOLDFAST_REGISTRY_TOKEN",
        "NODE_REPL_AUTH_TOKEN",
        "OPENAI_FEDERATION_RULE_ID",
        "OPENAI_IDENTITY_TOKEN_FILE",
        "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
    }
)
