"""Reports: runs read, put into honest statistics, and shown as one web page, figures and tables.

results → statistics → summary, curves → page (HTML), figures, tables, export
"""
