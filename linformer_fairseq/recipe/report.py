def write_report(settings, out): pass
