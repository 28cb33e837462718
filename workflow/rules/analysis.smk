"""From runs to tables, figures and the page. By hand: the same commands on the same folder."""

TIDY = [
    RESULTS / f"{name}.parquet"
    for name in ("cells", "updates", "episodes", "evaluations", "timings")
]


rule aggregate:
    input:
        CELL_FILES,
        ARM_FILES,
    output:
        RESULTS / "benchmark.json",
        TIDY,
    log:
        RESULTS / "logs" / "aggregate.log",
    params:
        plan=PLAN_JSON,
        folder=RESULTS,
    shell:
        "rlbench aggregate {params.folder:q} --benchmark {params.plan:q} > {log:q} 2>&1"


rule tables:
    input:
        rules.aggregate.output,
    output:
        report(
            directory(RESULTS / "tables"),
            patterns=["{name}.csv"],
            caption="../report/table.rst",
            category="Tables",
        ),
    log:
        RESULTS / "logs" / "tables.log",
    params:
        folder=RESULTS,
    shell:
        "rlbench tables {params.folder:q} > {log:q} 2>&1"


rule figures:
    input:
        rules.aggregate.output,
    output:
        report(
            directory(RESULTS / "figures"),
            patterns=["{name}.svg"],
            caption="../report/figure.rst",
            category="Figures",
        ),
    log:
        RESULTS / "logs" / "figures.log",
    params:
        folder=RESULTS,
    shell:
        "rlbench figures {params.folder:q} > {log:q} 2>&1"


rule page:
    input:
        rules.aggregate.output,
        rules.tables.output,
        rules.figures.output,
    output:
        report(
            RESULTS / "report.html",
            caption="../report/page.rst",
            category="Report",
        ),
    log:
        RESULTS / "logs" / "report.log",
    params:
        folder=RESULTS,
    shell:
        "rlbench report {params.folder:q} > {log:q} 2>&1"
