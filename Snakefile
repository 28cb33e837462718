"""The benchmark as a workflow: `snakemake --cores N [--configfile config/smoke.yaml]`."""


include: "workflow/rules/common.smk"


container: IMAGE


localrules:  # seconds each; on a cluster they run where the workflow was started
    all,
    aggregate,
    tables,
    figures,
    page,


resource_scopes:
    gpu="local",  # `resources: [gpu=1]` limits one machine, not the jobs sent to others


rule all:
    input:
        RESULTS / "report.html",
        CELL_FILES,
        ARM_FILES,


onsuccess:
    shell("rm -rf {PARTIAL:q}")


onerror:
    shell(
        "rm -rf {PARTIAL:q}; rlbench aggregate {RESULTS:q} --benchmark {PLAN_JSON:q} --output {PARTIAL:q} "
        "&& rlbench tables {PARTIAL:q} && rlbench figures {PARTIAL:q} "
        "&& rlbench report {PARTIAL:q} --allow-mixed || true"
    )


include: "workflow/rules/train.smk"
include: "workflow/rules/throughput.smk"
include: "workflow/rules/analysis.smk"
