"""Analysis: from the files of many runs to tables, figures and a report. Imports no torch."""
