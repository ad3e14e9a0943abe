"""Reports: read runs, compute honest statistics, write one web page, figures and tables.

results → statistics → summary, curves → page (HTML), figures, tables; export writes raw results
"""
