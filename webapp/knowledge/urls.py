"""URLs of the strategies (with their record in this installation) and of the team's documents."""

from django.urls import path

from webapp.knowledge import views_documents, views_strategies

app_name = "knowledge"

urlpatterns = [
    path("strategies/", views_strategies.strategies, name="strategies"),
    path("strategies/<slug:name>/", views_strategies.strategy, name="strategy"),
    path("documents/", views_documents.documents, name="documents"),
    path("documents/new", views_documents.new_document, name="new_document"),
    path("documents/<uuid:document_id>/", views_documents.document, name="document"),
    path("documents/<uuid:document_id>/edit", views_documents.edit_document, name="edit_document"),
    path("documents/<uuid:document_id>/delete", views_documents.delete_document, name="delete_document"),
]
